Figures of what happened, counted from the tables: over a window, for a tenant or for an operator; and for ever.

A window begins at $1. What happens in it happens to a job that was created in it ($2, the smallest id of then, with room
for a gateway's clock), or has ended in it, or has not ended: so one index on jobs by their end serves all of these.

-- name: count_from
-- When a window of so long begins, and the bounds of counting: how long a statement may take, on one processor, in
-- memory as far as a million jobs go, no plan for other windows than this one, none compiled. $1 interval, $2 milliseconds
SELECT now() - $1::interval AS since, set_config('statement_timeout', $2, true),
    set_config('max_parallel_workers_per_gather', '0', true), set_config('work_mem', '64MB', true),
    set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)

-- name: window_jobs
-- Of each tenant, and with tenant_id null of all together. How long a job waited is told by its first run_at: a later
-- one, after its start, belongs to another attempt, and the first one stands in the log then, if it was not now.
-- $1 since, $2 first id, $3 tenant_id or null
WITH job AS (
    SELECT j.tenant_id, j.created_at >= $1 AS is_new, j.status = 'succeeded' AND j.finished_at >= $1 AS is_accepted,
        j.attempt, CASE WHEN j.finished_at >= $1 THEN j.finished_at - j.started_at END AS ran, CASE
            WHEN j.started_at IS NULL OR j.started_at < $1 THEN NULL
            WHEN j.run_at <= j.started_at THEN j.started_at - j.run_at
            ELSE greatest('0', j.started_at - coalesce((
                SELECT (e.data::jsonb ->> 'run_at')::timestamptz FROM outlive.job_events e
                WHERE e.job_id = j.id AND e.seq = 1 AND e.kind = 'status'
            ), j.created_at))
        END AS waited
    FROM outlive.ai_jobs j
    WHERE (j.id >= $2 OR j.finished_at >= $1 OR j.finished_at IS NULL) AND ($3::uuid IS NULL OR j.tenant_id = $3)
)
SELECT tenant_id,
    count(*) FILTER (WHERE is_new) AS created,
    count(*) FILTER (WHERE is_accepted) AS accepted,
    count(*) FILTER (WHERE is_accepted AND attempt = 1) AS accepted_at_once,
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY waited) AS waits,
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ran) AS runs
FROM job GROUP BY GROUPING SETS ((tenant_id), ())

-- name: window_attempts
-- Of each tenant. $1 since, $2 first id, $3 tenant_id or null
SELECT j.tenant_id,
    count(*) FILTER (WHERE a.started_at >= $1) AS attempts,
    count(*) FILTER (WHERE a.started_at >= $1 AND a.attempt > 1) AS retries,
    count(*) FILTER (WHERE a.finished_at >= $1 AND a.outcome = 'lost') AS lost
FROM outlive.ai_jobs j JOIN outlive.job_attempts a ON a.job_id = j.id
WHERE (j.id >= $2 OR j.finished_at >= $1 OR j.finished_at IS NULL) AND ($3::uuid IS NULL OR j.tenant_id = $3)
GROUP BY j.tenant_id

-- name: window_models
-- What each model was called and what came of it, of each tenant. A model is null where its provider has none.
-- $1 since, $2 first id, $3 tenant_id or null
WITH job AS (
    SELECT id, tenant_id, provider, model, status = 'succeeded' AND finished_at >= $1 AS is_accepted
    FROM outlive.ai_jobs j
    WHERE (j.id >= $2 OR j.finished_at >= $1 OR j.finished_at IS NULL) AND ($3::uuid IS NULL OR j.tenant_id = $3)
), seen AS (
    SELECT j.tenant_id, c.provider, c.model, count(*) AS calls, count(*) FILTER (WHERE c.outcome = 'unknown') AS unknown,
        sum(c.cost_usd) AS cost_usd, count(*) FILTER (WHERE c.cost_usd IS NULL OR c.cost_is_lower_bound) AS cost_unknown,
        0 AS accepted
    FROM job j JOIN outlive.provider_calls c ON c.job_id = j.id
    WHERE c.started_at >= $1 GROUP BY j.tenant_id, c.provider, c.model
    UNION ALL
    SELECT tenant_id, provider, model, 0, 0, NULL, 0, count(*)
    FROM job WHERE is_accepted AND provider IS NOT NULL GROUP BY tenant_id, provider, model
)
SELECT tenant_id, provider, model, sum(calls)::bigint AS calls, sum(unknown)::bigint AS unknown,
    sum(cost_usd) AS cost_usd, sum(cost_unknown)::bigint AS cost_unknown, sum(accepted)::bigint AS accepted
FROM seen GROUP BY tenant_id, provider, model

-- name: all_jobs
-- Jobs by what they are and how they are, how many attempts each had, when the first of them was made, and since when
-- the one that has waited the longest could run.
SELECT kind, provider, model, status::text, attempt, count(*) AS jobs, min(created_at) AS first_at,
    max(extract(epoch FROM now() - run_at)) FILTER (WHERE status = 'queued') AS waited_s
FROM outlive.ai_jobs GROUP BY kind, provider, model, status, attempt

-- name: all_retries
-- Attempts after the first by the reason that their event gives; by what became of the one before where a worker from
-- before 0003 began them.
SELECT coalesce(a.reason, CASE before.outcome
        WHEN 'lost' THEN 'lease_expired'
        WHEN 'released' THEN 'released'
        WHEN 'unknown' THEN 'unknown_retry'
        WHEN 'failed' THEN CASE WHEN before.counted THEN 'transient_error' ELSE 'throttled' END
        ELSE before.outcome
    END) AS reason, count(*) AS retries
FROM outlive.job_attempts a
JOIN outlive.job_attempts before ON before.job_id = a.job_id AND before.attempt = a.attempt - 1
WHERE a.attempt > 1 GROUP BY 1

-- name: all_leases_lost
-- Attempts whose holder did not renew its lease in time.
SELECT count(*) AS lost FROM outlive.job_attempts WHERE outcome = 'lost'

-- name: all_calls
-- Calls by what they are and how they ended. How far one had come is told by its worker when it closes it: what a
-- reaper closed has no times, and is `lost`.
SELECT provider, model, outcome, cost_source,
    CASE WHEN first_chunk_at IS NOT NULL THEN 'streaming' WHEN sent_at IS NOT NULL THEN 'sent' ELSE 'lost' END AS phase,
    count(*) AS calls, sum(cost_usd) AS cost_usd, count(*) FILTER (WHERE cost_usd IS NULL OR cost_is_lower_bound) AS cost_unknown,
    min(started_at) AS first_at
FROM outlive.provider_calls GROUP BY 1, 2, 3, 4, 5
