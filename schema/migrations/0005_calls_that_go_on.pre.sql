-- Calls whose generation outlives the connection: a later attempt goes on with it instead of buying another. What became
-- of a call, and what it cost, may be learned after the job's end. And with what prices a cost was reckoned.

ALTER TABLE outlive.provider_calls
    ADD COLUMN resume_id text,
    ADD COLUMN resume_cursor text,
    ADD COLUMN resume_seq integer,
    ADD COLUMN began_seq integer,
    ADD COLUMN seamless boolean NOT NULL DEFAULT false,
    ADD COLUMN asked bytea,
    ADD COLUMN continues_attempt smallint,
    ADD COLUMN continues_call smallint,
    ADD COLUMN looks smallint NOT NULL DEFAULT 0,
    ADD COLUMN look_after timestamptz,
    ADD COLUMN price_input_usd numeric(18, 9) CHECK (price_input_usd >= 0),
    ADD COLUMN price_output_usd numeric(18, 9) CHECK (price_output_usd >= 0),
    ADD COLUMN price_source text,
    ADD COLUMN priced_at date,
    ADD CHECK ((continues_attempt IS NULL) = (continues_call IS NULL)),
    ADD CHECK ((resolved_outcome IS NULL) = (resolved_at IS NULL));
COMMENT ON COLUMN outlive.provider_calls.resume_id IS 'the provider''s own id of a generation that goes on when nobody listens';
COMMENT ON COLUMN outlive.provider_calls.resume_cursor IS 'how much of it is in the log, in the provider''s own counting; committed with the text';
COMMENT ON COLUMN outlive.provider_calls.resume_seq IS 'the last event of the log that resume_cursor stands for';
COMMENT ON COLUMN outlive.provider_calls.began_seq IS 'the last event before its first piece';
COMMENT ON COLUMN outlive.provider_calls.seamless IS 'whether all that the log holds since the last checkpoint is of this call';
COMMENT ON COLUMN outlive.provider_calls.asked IS 'hash of what it asks for: another that asks for the same may go on with it';
COMMENT ON COLUMN outlive.provider_calls.continues_attempt IS 'with continues_call: the call whose generation this one goes on with, and which therefore cost nothing of its own';
COMMENT ON COLUMN outlive.provider_calls.looks IS 'how often somebody has asked the provider what became of it';
COMMENT ON COLUMN outlive.provider_calls.price_input_usd IS 'with price_output_usd: dollars per million tokens with which the cost was reckoned here; null where it was not';
COMMENT ON COLUMN outlive.provider_calls.price_source IS 'whose prices: the providers file, or genai-prices with its version';
COMMENT ON COLUMN outlive.provider_calls.priced_at IS 'the day whose prices they are';
COMMENT ON COLUMN outlive.provider_calls.resolved_outcome IS 'what was learned later, beside the first verdict; continued = another call goes on with it';

-- What the reconciler looks for.
CREATE INDEX provider_calls_unresolved ON outlive.provider_calls (started_at)
    WHERE outcome IN ('unknown', 'cancel_unconfirmed') AND resolved_at IS NULL
        AND (resume_id IS NOT NULL OR provider_request_id IS NOT NULL);

-- ---------------------------------------------------------------- money that is learned later

ALTER TABLE outlive.quota_reservations ADD COLUMN adjusted_usd numeric(18, 9);
COMMENT ON COLUMN outlive.quota_reservations.adjusted_usd IS 'by how much what was charged has changed since: the sum of the ledger''s entries adjust';

-- An ended job pays what it would have paid, had this been known at its end; returns by how much that is more.
CREATE FUNCTION outlive.adjust_bill(of_job uuid) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    job     outlive.ai_jobs;
    promise outlive.quota_reservations;
    due     record;
    more    numeric;
BEGIN
    SELECT * INTO promise FROM outlive.quota_reservations WHERE job_id = of_job AND state = 'charged' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT * INTO job FROM outlive.ai_jobs WHERE id = of_job;
    due := outlive.bill_of(job, promise.amount_usd);
    more := coalesce(due.bill - coalesce(promise.charged_usd, 0) - coalesce(promise.adjusted_usd, 0), 0);
    IF more = 0 THEN
        RETURN 0;
    END IF;
    UPDATE outlive.quota_reservations SET adjusted_usd = coalesce(adjusted_usd, 0) + more WHERE job_id = of_job;
    PERFORM outlive.hold_accounts(promise.tenant_id);
    INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)
    VALUES (promise.tenant_id, promise.month, of_job, 'adjust', 0, more);
    PERFORM outlive.book(promise.tenant_id, promise.month, 0, more);
    RETURN more;
END $$;

-- ---------------------------------------------------------------- how a job is seen

-- With what was learned after its end.
CREATE OR REPLACE VIEW outlive.jobs_shown AS
SELECT j.id, j.tenant_id, j.user_id, j.kind, j.status::text, j.priority, j.provider, j.model, j.attempts,
    j.max_attempts, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.retry_of, j.created_at, j.run_at,
    j.started_at, j.finished_at, j.error_code, j.error_class, coalesce(l.last_seq, j.last_seq) AS last_event_id,
    c.metadata, c.result, c.error_message,
    CASE
        -- One that is due and still scheduled waits for a worker that promotes it.
        WHEN j.status = 'scheduled' AND j.run_at > now() THEN 'run_at'
        WHEN j.status IN ('queued', 'scheduled') THEN coalesce(
            (SELECT CASE WHEN n.scope LIKE 'tenant:%' THEN 'tenant' ELSE n.scope END
            FROM outlive.tenants t,
                unnest(ARRAY['global', 'provider:' || j.provider, 'tenant:' || t.name]) WITH ORDINALITY AS n(scope, place)
            WHERE t.id = j.tenant_id AND EXISTS (SELECT FROM outlive.limits m WHERE m.scope = n.scope)
                AND outlive.is_full(n.scope)
            ORDER BY n.place LIMIT 1),
            (SELECT 'no_worker' WHERE NOT EXISTS (SELECT FROM outlive.workers w
                WHERE j.kind = ANY (w.kinds) AND w.seen_at > now() - interval '60 s'
                    AND (j.provider IS NULL OR w.providers IS NULL OR j.provider = ANY (w.providers))))
        )
    END AS waiting_for,
    j.reserved_usd,
    CASE WHEN r.job_id IS NOT NULL THEN coalesce(r.charged_usd + coalesce(r.adjusted_usd, 0), r.adjusted_usd)
        WHEN j.reserved_usd = 0 AND outlive.has_ended(j.status) THEN 0 END AS charged_usd
FROM outlive.ai_jobs j
LEFT JOIN outlive.job_leases l ON l.job_id = j.id
LEFT JOIN outlive.job_contents c ON c.job_id = j.id
LEFT JOIN outlive.quota_reservations r ON r.job_id = j.id;
