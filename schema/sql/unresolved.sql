Calls of which nobody knows what became of them, and whose provider may tell.

-- name: take_unresolved
-- Those whose turn it is to be asked after, which is then put off: nobody else asks at the same time, and who does not
-- know yet is asked less and less often. Not the last call of a job that goes on: another attempt may go on with it.
-- $1 providers, $2 seconds back, $3 how many, $4 how often at most
UPDATE outlive.provider_calls p
SET looks = p.looks + 1, look_after = now() + make_interval(secs => least(3600, 10 * 2.0 ^ p.looks))
FROM (
    SELECT c.job_id, c.attempt, c.call FROM outlive.provider_calls c JOIN outlive.ai_jobs j ON j.id = c.job_id
    WHERE c.outcome IN ('unknown', 'cancel_unconfirmed') AND c.resolved_at IS NULL
        AND (c.resume_id IS NOT NULL OR c.provider_request_id IS NOT NULL)
        AND c.started_at > now() - make_interval(secs => $2) AND c.provider = ANY ($1) AND c.looks < $4
        AND (c.look_after IS NULL OR c.look_after <= now())
        AND (j.finished_at IS NOT NULL OR EXISTS (
            SELECT FROM outlive.provider_calls o
            WHERE o.job_id = c.job_id AND (o.attempt, o.call) > (c.attempt, c.call)
        ))
    ORDER BY c.started_at LIMIT $3 FOR UPDATE OF c SKIP LOCKED
) AS due
WHERE p.job_id = due.job_id AND p.attempt = due.attempt AND p.call = due.call
RETURNING p.job_id, p.attempt, p.call, p.provider, p.model, p.resume_id, p.provider_request_id

-- name: resolve_call
-- Once, beside the first verdict. What is not known now either stays as it was.
-- $1 job_id, $2 attempt, $3 call, $4 outcome, $5 input tokens, $6 output tokens, $7 usage source, $8 cost, $9 its source,
-- $10 whether it may have cost more, $11 and $12 prices, $13 where they are from, $14 their date
UPDATE outlive.provider_calls
SET resolved_outcome = $4, resolved_at = now(), input_tokens = coalesce($5, input_tokens),
    output_tokens = coalesce($6, output_tokens), usage_source = coalesce($7, usage_source),
    cost_usd = coalesce($8, cost_usd), cost_source = CASE WHEN $8::numeric IS NULL THEN cost_source ELSE $9 END,
    cost_is_lower_bound = CASE WHEN $8::numeric IS NULL THEN cost_is_lower_bound ELSE $10 END,
    price_input_usd = coalesce($11, price_input_usd), price_output_usd = coalesce($12, price_output_usd),
    price_source = coalesce($13, price_source), priced_at = coalesce($14, priced_at)
WHERE job_id = $1 AND attempt = $2 AND call = $3 AND resolved_at IS NULL AND outcome <> 'running' RETURNING call

-- name: adjust_bill
-- Behind resolve_call, in its transaction. $1 job_id
SELECT outlive.adjust_bill($1) AS more_usd
