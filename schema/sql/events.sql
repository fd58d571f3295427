The log.

-- name: append_events
-- Fence, count and insert for all runs of a worker in one statement. A job does not come back where its run token is
-- stale, its log is not at base_seq or its lease row is locked by somebody; nothing of it is written then. The lock is
-- FOR NO KEY UPDATE: without one, or with FOR KEY SHARE, a stale row commits after the job was taken over. SKIP LOCKED,
-- so that one locked row delays no other run and two flushes cannot deadlock.
-- $1 job_ids, $2 run_tokens, $3 base_seqs, $4 counts of the runs; $5 job_ids, $6 seqs, $7 kinds, $8 data of the events
WITH batch AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::integer[])
        AS b(job_id, run_token, base_seq, events)
), held AS MATERIALIZED (
    SELECT l.job_id, b.events FROM outlive.job_leases l JOIN batch b USING (job_id)
    WHERE l.run_token = b.run_token AND l.last_seq = b.base_seq
    FOR NO KEY UPDATE OF l SKIP LOCKED
), moved AS (
    UPDATE outlive.job_leases l SET last_seq = l.last_seq + held.events
    FROM held WHERE l.job_id = held.job_id RETURNING l.job_id, l.attempt
), written AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT e.job_id, e.seq, e.kind::outlive.event_kind, moved.attempt, e.data
    FROM unnest($5::uuid[], $6::integer[], $7::text[], $8::text[]) AS e(job_id, seq, kind, data)
    JOIN moved USING (job_id)
)
SELECT job_id FROM moved

-- name: read_after
-- One page of one log, bounded in rows and in bytes, never empty while there is a next event.
-- $1 job_id, $2 seq to go on after, $3 rows at most, $4 bytes at most
SELECT seq, kind, attempt, data FROM (
    SELECT seq, kind::text, attempt, data,
        sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS bytes_before
    FROM (
        SELECT seq, kind, attempt, data FROM outlive.job_events
        WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
    ) AS rows_of_page
) AS page WHERE bytes_before < $4 ORDER BY seq

-- name: read_many
-- What is new of many logs, at most $3 events of each. $1 job_ids, $2 seqs to go on after
SELECT c.job_id, e.seq, e.kind::text, e.attempt, e.data
FROM unnest($1::uuid[], $2::integer[]) AS c(job_id, after)
CROSS JOIN LATERAL (
    SELECT seq, kind, attempt, data FROM outlive.job_events j
    WHERE j.job_id = c.job_id AND j.seq > c.after ORDER BY j.seq LIMIT $3
) AS e
ORDER BY c.job_id, e.seq

-- name: log_head
-- How far a log is and whether it is finished. $1 job_id, $2 tenant_id or null, $3 user_id or null
SELECT coalesce(l.last_seq, j.last_seq) AS last_seq, outlive.has_ended(j.status) AS finished
FROM outlive.ai_jobs j LEFT JOIN outlive.job_leases l ON l.job_id = j.id
WHERE j.id = $1 AND ($2::uuid IS NULL OR j.tenant_id = $2) AND ($3::text IS NULL OR j.user_id = $3)
