What the holder of a lease does with its run, and what is done when a holder is gone.
Lock order: ai_jobs, job_leases, then the rest; several rows of one table by id.

-- name: promote_due
-- Scheduled jobs whose time has come. $1 how many at most
WITH due AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs WHERE status = 'scheduled' AND run_at <= now()
    ORDER BY run_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE outlive.ai_jobs j SET status = 'queued' FROM due WHERE j.id = due.id RETURNING j.id

-- name: claim
-- Take jobs: lease, attempt and `attempt` event in one commit. `start_before` bounds the first start only: a later
-- attempt that it kept from being taken would wait for ever. MATERIALIZED, or the planner may run the locking
-- part once per row and take more than $5. $1 worker, $2 lease in seconds, $3 kinds, $4 providers, $5 how many
WITH ready AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs
    WHERE status = 'queued' AND kind = ANY($3) AND (provider IS NULL OR provider = ANY($4))
        AND attempts < max_attempts AND (start_before IS NULL OR start_before > now() OR attempt > 0)
    ORDER BY priority DESC, run_at, id LIMIT $5 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE outlive.ai_jobs j
    SET status = 'running', attempt = attempt + 1, attempts = attempts + 1, last_seq = last_seq + 1,
        started_at = coalesce(started_at, now())
    FROM ready WHERE j.id = ready.id
    RETURNING j.*, gen_random_uuid() AS run_token
), lease AS (
    INSERT INTO outlive.job_leases (job_id, run_token, attempt, worker, lease_until, last_seq)
    SELECT id, run_token, attempt, $1, clock_timestamp() + make_interval(secs => $2), last_seq FROM taken
), begun AS (
    INSERT INTO outlive.job_attempts (job_id, attempt, worker, run_token)
    SELECT id, attempt, $1, run_token FROM taken
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT id, last_seq, 'attempt', attempt,
        jsonb_build_object('attempt', attempt, 'resumes_after', resumes_after, 'reason', next_reason)
    FROM taken
)
SELECT t.id AS job_id, t.run_token, t.attempt, t.attempts, t.max_attempts, t.kind, t.provider, t.model,
    t.on_unknown, t.last_seq, t.traceparent, c.input, c.checkpoint
FROM taken t JOIN outlive.job_contents c ON c.job_id = t.id
ORDER BY t.priority DESC, t.run_at, t.id

-- name: heartbeat
-- Prolong the leases of one worker's runs. A locked row is skipped, never waited for: `renewed` is false then and
-- nothing is known. `held_by` is null where the lease has gone.
-- $1 job_ids, $2 run_tokens, $3 lease in seconds
WITH mine AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS m(job_id, run_token)
), free AS (
    SELECT l.job_id FROM outlive.job_leases l JOIN mine USING (job_id, run_token)
    ORDER BY l.job_id FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
    UPDATE outlive.job_leases l SET lease_until = clock_timestamp() + make_interval(secs => $3)
    FROM free WHERE l.job_id = free.job_id RETURNING l.job_id
)
SELECT m.job_id, r.job_id IS NOT NULL AS renewed, l.run_token AS held_by
FROM mine m
LEFT JOIN renewed r USING (job_id)
LEFT JOIN outlive.job_leases l ON l.job_id = m.job_id

-- name: leases_of
-- Who holds these jobs and how far their logs are, for a holder that does not know what became of its own commit.
-- $1 job_ids
SELECT job_id, run_token, last_seq FROM outlive.job_leases WHERE job_id = ANY($1)

-- name: lock_expired
-- A run whose lease ran out, still so under both locks; no row where somebody is at it.
-- $1 job_id, $2 run_token
WITH job AS MATERIALIZED (
    SELECT id, attempts, max_attempts, on_unknown, kind,
        CASE WHEN cancel_requested_at IS NOT NULL THEN coalesce(cancel_by, 'user') END AS cancel_by
    FROM outlive.ai_jobs
    WHERE id = $1 AND status = 'running' FOR UPDATE SKIP LOCKED
), lease AS MATERIALIZED (
    SELECT l.job_id, l.attempt, l.last_seq FROM outlive.job_leases l JOIN job ON job.id = l.job_id
    WHERE l.run_token = $2 AND l.lease_until < clock_timestamp() FOR UPDATE OF l SKIP LOCKED
)
SELECT job.*, lease.attempt, lease.last_seq, coalesce(k.repeat, 'never') AS repeat,
    c.checkpoint IS NOT NULL AS has_checkpoint
FROM job JOIN lease ON lease.job_id = job.id
LEFT JOIN outlive.job_kinds k ON k.kind = job.kind
LEFT JOIN outlive.job_contents c ON c.job_id = job.id

-- name: cancels_among
-- Those of these jobs that somebody wants to end, and who. $1 job_ids
SELECT id, coalesce(cancel_by, 'user') AS cancel_by FROM outlive.ai_jobs WHERE id = ANY($1) AND cancel_requested_at IS NOT NULL

-- name: list_expired
-- Leases that ran out, without a lock, paged by id so that a page of locked ones hides nobody.
-- $1 id to go on after, $2 how many
SELECT job_id, run_token FROM outlive.job_leases
WHERE lease_until < clock_timestamp() AND job_id > $1 ORDER BY job_id LIMIT $2

-- name: end_run
-- The one end of a job that runs: terminal event, status, result, attempt and lease in one commit; a call that is open
-- still was never confirmed as closed. No row comes back where the token is stale, the log is not where the caller
-- thinks, or somebody wants the job cancelled and this is another end.
-- $1 job_id, $2 run_token, $3 last seq, $4 status = kind of the event, $5 its data, $6 outcome of the attempt,
-- $7 result, $8 error code, $9 error class, $10 error message
WITH job AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs
    WHERE id = $1 AND status = 'running' AND (cancel_requested_at IS NULL OR $4 = 'cancelled') FOR UPDATE
), lease AS (
    DELETE FROM outlive.job_leases l USING job
    WHERE l.job_id = job.id AND l.run_token = $2 AND l.last_seq = $3
    RETURNING l.job_id, l.attempt, l.last_seq + 1 AS seq
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT job_id, seq, $4::text::outlive.event_kind, attempt, $5 FROM lease
), closed AS (
    UPDATE outlive.job_attempts a SET outcome = $6, finished_at = now()
    FROM lease WHERE a.job_id = lease.job_id AND a.attempt = lease.attempt
), calls AS (
    UPDATE outlive.provider_calls p SET outcome = 'unknown', error_class = 'unknown', error_code = 'not_confirmed',
        finished_at = now()
    FROM lease WHERE p.job_id = lease.job_id AND p.attempt = lease.attempt AND p.outcome = 'running'
), content AS (
    UPDATE outlive.job_contents c SET result = $7, error_message = $10 FROM lease WHERE c.job_id = lease.job_id
)
UPDATE outlive.ai_jobs j
SET status = $4::text::outlive.job_status, last_seq = lease.seq, finished_at = now(),
    ended_xid = pg_current_xact_id(), error_code = $8, error_class = $9
FROM lease WHERE j.id = lease.job_id RETURNING lease.seq

-- name: put_back
-- The run ends and the job does not: it waits again, at once or for its time. No row comes back where the token is
-- stale, or somebody wants the job cancelled. $1 job_id, $2 run_token, $3 last seq, $4 seconds to wait, 0 = none, $5 reason of the next attempt,
-- $6 outcome of this one, $7 whether it counts
WITH job AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs
    WHERE id = $1 AND status = 'running' AND cancel_requested_at IS NULL FOR UPDATE
), lease AS (
    DELETE FROM outlive.job_leases l USING job
    WHERE l.job_id = job.id AND l.run_token = $2 AND l.last_seq = $3
    RETURNING l.job_id, l.attempt, l.last_seq, now() + make_interval(secs => $4) AS run_at
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT job_id, last_seq + 1, 'status', attempt, jsonb_build_object('status', 'scheduled',
        'run_at', outlive.rfc3339(run_at), 'reason', $5::text)
    FROM lease WHERE $4 > 0
), closed AS (
    UPDATE outlive.job_attempts a SET outcome = $6, finished_at = now(), counted = $7
    FROM lease WHERE a.job_id = lease.job_id AND a.attempt = lease.attempt
), calls AS (
    UPDATE outlive.provider_calls p SET outcome = 'unknown', error_class = 'unknown', error_code = 'not_confirmed',
        finished_at = now()
    FROM lease WHERE p.job_id = lease.job_id AND p.attempt = lease.attempt AND p.outcome = 'running'
)
UPDATE outlive.ai_jobs j
SET status = CASE WHEN $4 > 0 THEN 'scheduled' ELSE 'queued' END::outlive.job_status,
    last_seq = lease.last_seq + CASE WHEN $4 > 0 THEN 1 ELSE 0 END,
    run_at = CASE WHEN $4 > 0 THEN lease.run_at ELSE j.run_at END,
    attempts = j.attempts - CASE WHEN $7 THEN 0 ELSE 1 END, next_reason = $5
FROM lease WHERE j.id = lease.job_id RETURNING j.last_seq

-- name: store_checkpoint
-- What a later attempt begins with, and the event up to which its reader keeps the text. No row comes back where the
-- token is stale or the log is elsewhere. $1 job_id, $2 run_token, $3 last seq, $4 checkpoint
WITH job AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs WHERE id = $1 AND status = 'running' FOR UPDATE
), lease AS MATERIALIZED (
    SELECT l.job_id FROM outlive.job_leases l JOIN job ON job.id = l.job_id
    WHERE l.run_token = $2 AND l.last_seq = $3 FOR NO KEY UPDATE OF l
), content AS (
    UPDATE outlive.job_contents c SET checkpoint = $4 FROM lease WHERE c.job_id = lease.job_id
)
UPDATE outlive.ai_jobs j SET resumes_after = $3 FROM lease WHERE j.id = lease.job_id RETURNING j.id

-- name: expire_unstarted
-- Jobs that were not started in time. $1 how many, $2 the event's data, $3 error message
WITH late AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs
    WHERE start_before <= now() AND status IN ('queued', 'scheduled') AND attempt = 0
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE outlive.ai_jobs j SET status = 'failed', last_seq = last_seq + 1, finished_at = now(),
        ended_xid = pg_current_xact_id(), error_code = 'expired', error_class = 'expired'
    FROM late WHERE j.id = late.id RETURNING j.id, j.last_seq, j.attempt
), content AS (
    UPDATE outlive.job_contents c SET error_message = $3 FROM ended WHERE c.job_id = ended.id
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT id, last_seq, 'failed', attempt, $2 FROM ended
)
SELECT id, last_seq FROM ended
