What the holder of a lease does with its run, and what is done when a holder is gone.
Lock order: ai_jobs, job_leases, permits, quota_reservations, quota_accounts; several rows of one table by id.

-- name: promote_due
-- Scheduled jobs whose time has come. $1 how many at most
WITH due AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs WHERE status = 'scheduled' AND run_at <= now()
    ORDER BY run_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE outlive.ai_jobs j SET status = 'queued' FROM due WHERE j.id = due.id RETURNING j.id

-- name: claim
-- Take jobs; migration 0003 says how. A row without a job_id: others were at what is left, ask again.
-- $1 worker, $2 lease in seconds, $3 kinds, $4 providers, $5 how many, $6 the lowest start tag that a tenant can have,
-- $7 tenant_ids with $8 start tags above it
SELECT * FROM outlive.claim_jobs($1, $2, $3, $4, $5, $6, $7, $8)

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
    SELECT id, attempts, max_attempts, on_unknown, kind, max_cost_usd, call_usd,
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

-- name: hold_run
-- Waits for whoever is at the job or its lease, so that end_runs does not skip it. $1 job_id
WITH job AS MATERIALIZED (SELECT id FROM outlive.ai_jobs WHERE id = $1 FOR UPDATE)
SELECT l.job_id FROM outlive.job_leases l JOIN job ON job.id = l.job_id FOR UPDATE OF l

-- name: end_runs
-- The one end of jobs that run: terminal event, status, result, attempt and lease in one commit, the permits by the
-- trigger on the lease, the money by the one on the status. A call that is open still was never confirmed as closed.
-- A job does not come back where its token is stale, its log is not where the caller thinks, somebody wants it cancelled
-- and this is another end, or its row or its lease is locked: one that is does not delay the others.
-- $1 job_ids, $2 run_tokens, $3 last seqs, $4 statuses = kinds of the events, $5 their data, $6 outcomes of the attempts,
-- $7 results, $8 error codes, $9 error classes, $10 error messages
WITH ending AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[])
        AS e(job_id, run_token, last_seq, status, data, outcome, result, error_code, error_class, error_message)
), job AS MATERIALIZED (
    SELECT j.id FROM outlive.ai_jobs j JOIN ending e ON e.job_id = j.id
    WHERE j.status = 'running' AND (j.cancel_requested_at IS NULL OR e.status = 'cancelled')
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
), held AS MATERIALIZED (
    SELECT l.job_id FROM outlive.job_leases l JOIN job ON job.id = l.job_id JOIN ending e ON e.job_id = l.job_id
    WHERE l.run_token = e.run_token AND l.last_seq = e.last_seq
    ORDER BY l.job_id FOR UPDATE OF l SKIP LOCKED
), lease AS (
    DELETE FROM outlive.job_leases l USING held, ending e WHERE l.job_id = held.job_id AND e.job_id = l.job_id
    RETURNING e.*, l.attempt, l.last_seq + 1 AS seq
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT job_id, seq, status::outlive.event_kind, attempt, data FROM lease
), closed AS (
    UPDATE outlive.job_attempts a SET outcome = lease.outcome, finished_at = now()
    FROM lease WHERE a.job_id = lease.job_id AND a.attempt = lease.attempt
), calls AS (
    UPDATE outlive.provider_calls p SET outcome = 'unknown', error_class = 'unknown', error_code = 'not_confirmed',
        finished_at = now()
    FROM lease WHERE p.job_id = lease.job_id AND p.attempt = lease.attempt AND p.outcome = 'running'
), content AS (
    UPDATE outlive.job_contents c SET result = lease.result::json, error_message = lease.error_message
    FROM lease WHERE c.job_id = lease.job_id AND (lease.result IS NOT NULL OR lease.error_message IS NOT NULL)
)
UPDATE outlive.ai_jobs j
SET status = lease.status::outlive.job_status, last_seq = lease.seq, finished_at = now(),
    ended_xid = pg_current_xact_id(), error_code = lease.error_code, error_class = lease.error_class
FROM lease WHERE j.id = lease.job_id RETURNING j.id

-- name: put_back
-- The run ends and the job does not: it waits again, at once or for its time. No row comes back where the token is
-- stale, or somebody wants the job cancelled.
-- $1 job_id, $2 run_token, $3 last seq, $4 seconds to wait, 0 = none, $5 reason of the next attempt, $6 outcome of this
-- one, $7 whether it counts, $8 whether it was handed back and had written nothing
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
    attempts = j.attempts - CASE WHEN $7 THEN 0 ELSE 1 END, next_reason = $5,
    idle_releases = CASE WHEN $8 THEN j.idle_releases + 1 ELSE 0 END,
    throttled_s = j.throttled_s + CASE WHEN $5 = 'throttled' THEN ceil($4)::integer ELSE 0 END
FROM lease WHERE j.id = lease.job_id RETURNING j.last_seq

-- name: store_checkpoint
-- What a later attempt begins with, and the event up to which its reader keeps the text. No row comes back where the
-- token is stale or the log is elsewhere. $1 job_id, $2 run_token, $3 last seq, $4 checkpoint
WITH job AS MATERIALIZED (
    SELECT id FROM outlive.ai_jobs WHERE id = $1 AND status = 'running' FOR UPDATE
), lease AS MATERIALIZED (
    SELECT l.job_id, l.attempt FROM outlive.job_leases l JOIN job ON job.id = l.job_id
    WHERE l.run_token = $2 AND l.last_seq = $3 FOR NO KEY UPDATE OF l
), content AS (
    UPDATE outlive.job_contents c SET checkpoint = $4 FROM lease WHERE c.job_id = lease.job_id
), calls AS (
    UPDATE outlive.provider_calls p SET kept = true
    FROM lease WHERE p.job_id = lease.job_id AND p.attempt = lease.attempt AND p.outcome = 'succeeded' AND NOT p.kept
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
