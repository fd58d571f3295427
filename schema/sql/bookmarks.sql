How far calls are in the log that can be gone on with.

-- name: begin_bookmark
-- The generation has an id now, and nothing of it is in the log yet. No row comes back where the token is stale.
-- $1 job_id, $2 run_token, $3 call, $4 id, $5 cursor or null, $6 whether seamless
UPDATE outlive.provider_calls p SET resume_id = $4, resume_cursor = $5, resume_seq = l.last_seq, seamless = $6
FROM outlive.job_leases l
WHERE l.job_id = $1 AND l.run_token = $2 AND p.job_id = $1 AND p.attempt = l.attempt AND p.call = $3 RETURNING p.call

-- name: move_bookmarks
-- In the transaction of the append, whose locks are the fence. $1 job_ids, $2 calls, $3 cursors, $4 whether seamless
UPDATE outlive.provider_calls p SET resume_cursor = m.cursor, resume_seq = l.last_seq, seamless = m.seamless
FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::boolean[]) AS m(job_id, call, cursor, seamless)
JOIN outlive.job_leases l USING (job_id)
WHERE p.job_id = m.job_id AND p.attempt = l.attempt AND p.call = m.call

-- name: find_bookmark
-- Why a job's newest attempt was begun, and its last call if nobody knows what became of that one alone. It is seamless no
-- more once the log holds something behind it. $1 job_id
SELECT j.next_reason, c.attempt, c.call, c.provider, c.resume_id, c.resume_cursor, c.began_seq, c.asked,
    c.seamless AND c.resume_seq IS NOT NULL AND NOT EXISTS (
        SELECT FROM outlive.job_events e
        WHERE e.job_id = c.job_id AND e.seq > c.resume_seq AND e.kind IN ('chunk', 'channel', 'data')
    ) AS seamless
FROM outlive.ai_jobs j LEFT JOIN LATERAL (
    SELECT * FROM outlive.provider_calls p WHERE p.job_id = j.id ORDER BY p.attempt DESC, p.call DESC LIMIT 1
) AS c ON c.outcome IN ('running', 'unknown') AND c.resume_id IS NOT NULL AND c.resolved_at IS NULL AND NOT EXISTS (
    SELECT FROM outlive.provider_calls o WHERE o.job_id = c.job_id AND o.attempt = c.attempt AND o.call <> c.call
        AND o.outcome IN ('running', 'unknown')
)
WHERE j.id = $1

-- name: hand_over
-- What the generation costs is booked on the call that goes on with it, once. $1 job_id, $2 attempt, $3 call
UPDATE outlive.provider_calls
SET resolved_outcome = 'continued', resolved_at = now(), cost_usd = 0, cost_source = 'local', cost_is_lower_bound = false
WHERE job_id = $1 AND attempt = $2 AND call = $3 AND resolved_at IS NULL AND outcome <> 'running' RETURNING call

-- name: text_between
-- The text of a call that is gone on with, without its channels. $1 job_id, $2 after this seq, $3 to this one
SELECT coalesce(string_agg(data, '' ORDER BY seq), '') AS text FROM outlive.job_events
WHERE job_id = $1 AND seq > $2 AND seq <= $3 AND kind = 'chunk'
