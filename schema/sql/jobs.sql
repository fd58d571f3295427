What a caller does with a job: create it, find it again by its key, see it, list it, cancel it, try it again.

-- name: create_job
-- Job, content, first event and what is reserved in one commit. No row comes back where the idempotency key is taken;
-- nor where the tenant has a quota or a bound of its queue and $22 is false: then it has to be admitted first.
-- $1 id, $2 tenant_id, $3 user_id, $4 idempotency_scope, $5 idempotency_key, $6 request_hash, $7 kind,
-- $8 provider, $9 model, $10 priority, $11 max_attempts, $12 on_unknown, $13 run_at or null, $14 start_before,
-- $15 traceparent, $16 input, $17 metadata, $18 max_cost_usd, $19 price_usd, $20 call_usd, $21 reserved_usd,
-- $22 whether it was admitted
WITH job AS (
    INSERT INTO outlive.ai_jobs (id, tenant_id, user_id, idempotency_scope, idempotency_key, request_hash, kind,
        provider, model, priority, max_attempts, on_unknown, run_at, start_before, traceparent, max_cost_usd, price_usd,
        call_usd, reserved_usd, status, last_seq)
    SELECT $1, t.id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, coalesce($13, now()), $14, $15, $18, $19, $20, $21,
        CASE WHEN $13 > now() THEN 'scheduled' ELSE 'queued' END::outlive.job_status, 1
    FROM outlive.tenants t
    WHERE t.id = $2 AND ($22 OR (t.max_queued IS NULL AND t.quota_usd IS NULL AND outlive.creates_freely(t.id)))
    ON CONFLICT (tenant_id, idempotency_scope, idempotency_key) DO NOTHING
    RETURNING id, tenant_id, status, run_at, reserved_usd
), content AS (
    INSERT INTO outlive.job_contents (job_id, input, metadata) SELECT id, $16, $17 FROM job
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT id, 1, 'status', 0, CASE status
        WHEN 'scheduled' THEN jsonb_build_object('status', status, 'run_at', outlive.rfc3339(run_at), 'reason', 'run_at')
        ELSE jsonb_build_object('status', status) END
    FROM job
), promise AS (
    INSERT INTO outlive.quota_reservations (job_id, tenant_id, month, amount_usd)
    SELECT id, tenant_id, outlive.this_month(), reserved_usd FROM job WHERE reserved_usd IS DISTINCT FROM 0
), entry AS (
    INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)
    SELECT tenant_id, outlive.this_month(), id, 'reserve', reserved_usd, 0 FROM job WHERE reserved_usd > 0
)
SELECT id FROM job

-- name: lock_tenant
-- Whoever creates for a tenant with a quota or a bound of its queue holds its row, one after the other.
-- NO KEY, so that those who only refer to the row do not wait. $1 tenant_id
SELECT max_queued, quota_usd, CASE quota_period WHEN 'month' THEN outlive.this_month() ELSE quota_period END AS period
FROM outlive.tenants WHERE id = $1 FOR NO KEY UPDATE

-- name: count_waiting
-- What a tenant has waiting, counted up to $2. $1 tenant_id
SELECT count(*) AS waiting FROM (
    (SELECT FROM outlive.ai_jobs WHERE tenant_id = $1 AND status = 'queued' LIMIT $2)
    UNION ALL
    (SELECT FROM outlive.ai_jobs WHERE tenant_id = $1 AND status = 'scheduled' LIMIT $2)
) AS waiting

-- name: find_by_key
-- $1 tenant_id, $2 idempotency_scope, $3 idempotency_key
SELECT id, request_hash FROM outlive.ai_jobs
WHERE tenant_id = $1 AND idempotency_scope = $2 AND idempotency_key = $3

-- name: get_job
-- One job as far as the caller may see it.
-- $1 id, $2 tenant_id or null for an operator, $3 user_id or null for all users
SELECT * FROM outlive.jobs_shown
WHERE id = $1 AND ($2::uuid IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR user_id = $3)

-- name: list_jobs
-- Newest first. $1 tenant_id or null, $2 user_id or null, $3 status or null, $4 kind or null,
-- $5 ids or null for all, $6 id to go on before or null, $7 how many. No results: they may be large.
SELECT id, tenant_id, user_id, kind, status, priority, provider, model, attempts, max_attempts, cancel_requested,
    retry_of, created_at, run_at, started_at, finished_at, waiting_for, last_event_id, error_code, error_class,
    metadata, error_message, NULL AS result, reserved_usd, charged_usd
FROM outlive.jobs_shown
WHERE ($1::uuid IS NULL OR tenant_id = $1)
    AND ($2::text IS NULL OR user_id = $2)
    AND ($3::text IS NULL OR status = $3)
    AND ($4::text IS NULL OR kind = $4)
    AND ($5::uuid[] IS NULL OR id = ANY($5))
    AND ($6::uuid IS NULL OR id < $6)
ORDER BY id DESC LIMIT $7

-- name: cancel_job
-- A job that waits ends at once, with both events; of one that runs only the wish is kept, and its holder writes the
-- rest. The row's lock decides a race with the end: whoever comes second finds it done. `was` is the status before.
-- The first wish stands. $1 id, $2 tenant_id or null, $3 user_id or null, $4 who wishes it
WITH job AS MATERIALIZED (
    SELECT id, status FROM outlive.ai_jobs
    WHERE id = $1 AND ($2::uuid IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR user_id = $3) FOR UPDATE
), asked AS (
    UPDATE outlive.ai_jobs j SET cancel_requested_at = coalesce(cancel_requested_at, now()),
        cancel_by = CASE WHEN cancel_requested_at IS NULL THEN $4 ELSE cancel_by END
    FROM job WHERE j.id = job.id AND job.status = 'running' RETURNING j.id
), ended AS (
    UPDATE outlive.ai_jobs j SET status = 'cancelled', cancel_requested_at = now(), cancel_by = $4,
        finished_at = now(), ended_xid = pg_current_xact_id(), last_seq = last_seq + 2
    FROM job WHERE j.id = job.id AND job.status IN ('queued', 'scheduled') RETURNING j.id, j.last_seq, j.attempt
), events AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT id, last_seq - 1, 'cancel_requested'::outlive.event_kind, attempt, jsonb_build_object('by', $4::text)::text FROM ended
    UNION ALL
    SELECT id, last_seq, 'cancelled', attempt, jsonb_build_object('status', 'cancelled', 'attempt', attempt)::text
    FROM ended
)
SELECT job.status::text AS was, ended.last_seq FROM job LEFT JOIN ended USING (id)

-- name: retry_job
-- A new job with what an ended one was asked for; the input never leaves PostgreSQL. No row comes back where the
-- idempotency key is taken, the job did not fail or was not cancelled, or its content is gone; nor, as in create_job,
-- where the tenant has to admit it first.
-- $1 id, $2 id of the ended job, $3 tenant_id of both, $4 idempotency_scope, $5 idempotency_key, $6 request_hash,
-- $7 traceparent, $8 whether it was admitted
WITH old AS MATERIALIZED (
    SELECT j.*, c.input, c.metadata FROM outlive.ai_jobs j JOIN outlive.job_contents c ON c.job_id = j.id
    JOIN outlive.tenants t ON t.id = j.tenant_id
    WHERE j.id = $2 AND j.tenant_id = $3 AND j.status IN ('failed', 'cancelled')
        AND ($8 OR (t.max_queued IS NULL AND t.quota_usd IS NULL AND outlive.creates_freely(t.id)))
), job AS (
    INSERT INTO outlive.ai_jobs (id, tenant_id, user_id, idempotency_scope, idempotency_key, request_hash, kind,
        provider, model, priority, max_attempts, on_unknown, run_at, traceparent, retry_of, max_cost_usd, price_usd,
        call_usd, reserved_usd, status, last_seq)
    SELECT $1, tenant_id, user_id, $4, $5, $6, kind,
        provider, model, priority, max_attempts, on_unknown, now(), $7, id, max_cost_usd, price_usd,
        call_usd, reserved_usd, 'queued', 1
    FROM old
    ON CONFLICT (tenant_id, idempotency_scope, idempotency_key) DO NOTHING
    RETURNING id, tenant_id, reserved_usd
), content AS (
    INSERT INTO outlive.job_contents (job_id, input, metadata) SELECT job.id, old.input, old.metadata FROM job, old
), event AS (
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT id, 1, 'status', 0, jsonb_build_object('status', 'queued') FROM job
), promise AS (
    INSERT INTO outlive.quota_reservations (job_id, tenant_id, month, amount_usd)
    SELECT id, tenant_id, outlive.this_month(), reserved_usd FROM job WHERE reserved_usd IS DISTINCT FROM 0
), entry AS (
    INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)
    SELECT tenant_id, outlive.this_month(), id, 'reserve', reserved_usd, 0 FROM job WHERE reserved_usd > 0
)
SELECT id FROM job

-- name: cost_of_retry
-- What a new job like this one would reserve. $1 job_id
SELECT reserved_usd FROM outlive.ai_jobs WHERE id = $1
