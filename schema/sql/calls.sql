The ledger of requests on the wire.

-- name: open_call
-- Written and committed before the request is sent, under the lease. No row comes back where the token is stale.
-- A row that is there already is the holder's own, whose commit was not confirmed: it counts each call once.
-- Going on with another call's generation it is where that one was, or at the generation's start where no text is kept.
-- $1 job_id, $2 run_token, $3 call, $4 provider, $5 model, $6 hash of what is asked for, $7 whether seamless,
-- $8 attempt and $9 call that it goes on with, or null, $10 whether their text is kept
WITH lease AS MATERIALIZED (
    SELECT job_id, attempt, last_seq FROM outlive.job_leases WHERE job_id = $1 AND run_token = $2 FOR NO KEY UPDATE
)
INSERT INTO outlive.provider_calls (job_id, attempt, call, provider, model, asked, seamless, continues_attempt,
    continues_call, resume_id, resume_cursor, resume_seq, began_seq)
SELECT l.job_id, l.attempt, $3, $4, $5, $6, $7, $8::smallint, $9::smallint, b.resume_id,
    CASE WHEN $10 THEN b.resume_cursor END, CASE WHEN b.resume_id IS NOT NULL THEN l.last_seq END,
    CASE WHEN $10 THEN b.began_seq ELSE l.last_seq END
FROM lease l LEFT JOIN outlive.provider_calls b ON b.job_id = l.job_id AND b.attempt = $8 AND b.call = $9
ON CONFLICT (job_id, attempt, call) DO UPDATE SET started_at = now() RETURNING attempt

-- name: close_call
-- Once: a call that a reaper has closed as unknown stays so.
-- $1 job_id, $2 attempt, $3 call, $4 outcome, $5 error_class, $6 error_code, $7 http_status, $8 finish_reason,
-- $9 provider_request_id, $10 sent_at, $11 first_chunk_at, $12 input_tokens, $13 output_tokens, $14 usage_source,
-- $15 cost_usd, $16 cost_source, $17 cost_is_lower_bound, $18 resume_id,
-- $19 and $20 prices, $21 where they are from, $22 their date
UPDATE outlive.provider_calls
SET outcome = $4, error_class = $5, error_code = $6, http_status = $7, finish_reason = $8, provider_request_id = $9,
    sent_at = $10, first_chunk_at = $11, input_tokens = $12, output_tokens = $13, usage_source = $14, cost_usd = $15,
    cost_source = $16, cost_is_lower_bound = $17, resume_id = $18, price_input_usd = $19,
    price_output_usd = $20, price_source = $21, priced_at = $22, finished_at = now()
WHERE job_id = $1 AND attempt = $2 AND call = $3 AND outcome = 'running' RETURNING call

-- name: close_open_calls
-- Whoever held the run is gone: what its open calls did is not known. $1 job_id, $2 attempt
UPDATE outlive.provider_calls SET outcome = 'unknown', error_class = 'unknown', error_code = 'worker_lost',
    finished_at = now()
WHERE job_id = $1 AND attempt = $2 AND outcome = 'running' RETURNING call

-- name: attempt_spent
-- Whether an attempt had sent something that may have to be paid: what failed or was stopped unsent does not count.
-- $1 job_id, $2 attempt
SELECT EXISTS (
    SELECT FROM outlive.provider_calls
    WHERE job_id = $1 AND attempt = $2 AND outcome NOT IN ('failed', 'cancelled')
) AS spent

-- name: exposure
-- What is known of the cost of a job's calls, and how many of them may cost more than is known. $1 job_id
SELECT coalesce(sum(cost_usd), 0) AS spent_usd,
    count(*) FILTER (WHERE cost_usd IS NULL OR cost_is_lower_bound) AS unknown_calls
FROM outlive.provider_calls WHERE job_id = $1

-- name: list_calls
-- $1 job_id
SELECT attempt, call, provider, model, provider_request_id, started_at, sent_at, first_chunk_at, finished_at, outcome,
    error_class, http_status, input_tokens, output_tokens, usage_source, cost_usd, cost_source, cost_is_lower_bound,
    price_input_usd, price_output_usd, price_source, priced_at, continues_attempt, continues_call, resolved_outcome, resolved_at
FROM outlive.provider_calls WHERE job_id = $1 ORDER BY attempt, call

-- name: list_attempts
-- $1 job_id
SELECT attempt, reason, worker, started_at, finished_at, outcome, counted FROM outlive.job_attempts
WHERE job_id = $1 ORDER BY attempt

-- name: job_costs
-- Of each job the sum of what is known (null where nothing is) and whether all of it is known. $1 job_ids
SELECT j.job_id, sum(c.cost_usd) AS known_usd,
    coalesce(bool_and(c.cost_usd IS NOT NULL AND NOT c.cost_is_lower_bound) FILTER (WHERE c.call IS NOT NULL), true)
        AS complete
FROM unnest($1::uuid[]) AS j(job_id) LEFT JOIN outlive.provider_calls c USING (job_id)
GROUP BY j.job_id
