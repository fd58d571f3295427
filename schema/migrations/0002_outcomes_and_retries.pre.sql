-- Who asked to cancel, and the one order of all ends.

ALTER TABLE outlive.ai_jobs ADD COLUMN cancel_by text;
-- NOT VALID spares the scan: there is no value yet that could break it.
ALTER TABLE outlive.ai_jobs ADD CONSTRAINT ai_jobs_cancel_by
    CHECK (cancel_by IN ('user', 'budget', 'disconnect')) NOT VALID;
COMMENT ON COLUMN outlive.ai_jobs.cancel_by IS 'whose wish it was first; null with a wish means the user, who was the only one before this column';

ALTER TABLE outlive.ai_jobs ADD COLUMN ended_xid xid8;
COMMENT ON COLUMN outlive.ai_jobs.ended_xid IS 'the transaction that ended the job; orders outcomes. Of a dump restored into another server it has to be set to 1: the ids there are others';

-- What ended before this was here comes first, in the order of creation.
UPDATE outlive.ai_jobs SET ended_xid = pg_current_xact_id() WHERE outlive.has_ended(status);

CREATE INDEX ai_jobs_ended_of_tenant ON outlive.ai_jobs (tenant_id, ended_xid, id) WHERE ended_xid IS NOT NULL;
CREATE INDEX ai_jobs_ended ON outlive.ai_jobs (ended_xid, id) WHERE ended_xid IS NOT NULL;

-- Only below the oldest transaction that is still open: whoever may commit later has a higher id than all of these,
-- so a reader that goes on after the last of them misses none. A higher id that is visible already waits its turn.
CREATE VIEW outlive.outcomes_seen AS
SELECT j.id, j.tenant_id, j.user_id, j.kind, j.status::text, j.retry_of, j.created_at, j.finished_at, j.ended_xid,
    j.error_code, j.error_class, c.metadata, c.error_message
FROM outlive.ai_jobs j LEFT JOIN outlive.job_contents c ON c.job_id = j.id
WHERE j.ended_xid < pg_snapshot_xmin(pg_current_snapshot());
