-- Only versions from before 0003 read these.

DROP INDEX outlive.ai_jobs_ready;
DROP VIEW outlive.jobs_seen;
