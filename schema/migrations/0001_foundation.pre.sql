-- The whole path of one job: who may ask, what is to be done, who holds it, what came out, what was called.

CREATE TYPE outlive.job_status AS ENUM (
    'scheduled',  -- waits for run_at; promoted to queued when due
    'queued',     -- may be claimed now
    'running',    -- one row in job_leases says who holds it
    'succeeded',  -- the end, with a result
    'failed',     -- the end, with an error
    'cancelled'   -- the end, by request
);

CREATE TYPE outlive.event_kind AS ENUM (
    'status', 'attempt', 'chunk', 'channel', 'data', 'progress', 'cancel_requested', 'external',
    'succeeded', 'failed', 'cancelled', 'snapshot'
);

CREATE FUNCTION outlive.has_ended(status outlive.job_status) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN status IN ('succeeded', 'failed', 'cancelled');

CREATE TABLE outlive.tenants (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE outlive.api_keys (
    id          uuid PRIMARY KEY,
    tenant_id   uuid NOT NULL REFERENCES outlive.tenants,
    sha256      bytea NOT NULL UNIQUE CHECK (length(sha256) = 32),
    label       text NOT NULL DEFAULT '',
    is_operator boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz
);
COMMENT ON COLUMN outlive.api_keys.sha256 IS 'of the whole key; the key itself is shown once and stored nowhere';
CREATE INDEX api_keys_of_tenant ON outlive.api_keys (tenant_id);

CREATE TABLE outlive.job_kinds (
    kind             text PRIMARY KEY,
    version          integer NOT NULL,
    input_schema     json NOT NULL,
    repeat           text NOT NULL CHECK (repeat IN ('safe', 'checkpoint', 'never')),
    time_limit_s     integer NOT NULL CHECK (time_limit_s > 0),
    calls_provider   boolean NOT NULL,
    default_provider text,
    default_model    text,
    choices          json NOT NULL,
    registered_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN outlive.job_kinds.repeat IS 'whether a second execution is harmless: always, from a checkpoint, never';
COMMENT ON COLUMN outlive.job_kinds.choices IS '{provider: [models]} that the workers offer for this kind';

CREATE TABLE outlive.ai_jobs (
    id                  uuid PRIMARY KEY,
    tenant_id           uuid NOT NULL REFERENCES outlive.tenants,
    user_id             text,
    idempotency_scope   text NOT NULL DEFAULT '',
    idempotency_key     text NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    request_hash        bytea NOT NULL CHECK (length(request_hash) = 32),
    kind                text NOT NULL,
    provider            text,
    model               text,
    status              outlive.job_status NOT NULL,
    priority            smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    attempt             smallint NOT NULL DEFAULT 0,
    attempts            smallint NOT NULL DEFAULT 0,
    max_attempts        smallint NOT NULL CHECK (max_attempts BETWEEN 1 AND 20),
    on_unknown          text NOT NULL DEFAULT 'auto' CHECK (on_unknown IN ('auto', 'retry', 'fail')),
    last_seq            integer NOT NULL,
    resumes_after       integer NOT NULL DEFAULT 0,
    next_reason         text NOT NULL DEFAULT 'started',
    run_at              timestamptz NOT NULL,
    start_before        timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    cancel_requested_at timestamptz,
    error_code          text,
    error_class         text,
    retry_of            uuid,
    traceparent         text,
    UNIQUE (tenant_id, idempotency_scope, idempotency_key),
    CHECK (attempts BETWEEN 0 AND attempt AND attempts <= max_attempts),
    CHECK (outlive.has_ended(status) = (finished_at IS NOT NULL)),
    CHECK ((status = 'failed') = (error_code IS NOT NULL)),
    CHECK (status <> 'running' OR started_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01);
COMMENT ON COLUMN outlive.ai_jobs.id IS 'UUIDv7: its time orders lists and chooses the partition of job_events';
COMMENT ON COLUMN outlive.ai_jobs.idempotency_scope IS 'the user of the token that created the job; empty for an API key, whose keys belong to the tenant';
COMMENT ON COLUMN outlive.ai_jobs.attempt IS 'numbers every claim, never reused';
COMMENT ON COLUMN outlive.ai_jobs.attempts IS 'those that used up one of max_attempts; counted at the claim, so that a crash loop ends';
COMMENT ON COLUMN outlive.ai_jobs.last_seq IS 'the last event while nobody holds the job; while it runs, job_leases.last_seq is the truth';
COMMENT ON COLUMN outlive.ai_jobs.resumes_after IS 'the last event that the next attempt keeps';
COMMENT ON COLUMN outlive.ai_jobs.next_reason IS 'what the next attempt event gives as its reason';
CREATE INDEX ai_jobs_ready ON outlive.ai_jobs (priority DESC, run_at, id) WHERE status = 'queued';
CREATE INDEX ai_jobs_due ON outlive.ai_jobs (run_at) WHERE status = 'scheduled';
CREATE INDEX ai_jobs_unstarted ON outlive.ai_jobs (start_before)
    WHERE start_before IS NOT NULL AND status IN ('queued', 'scheduled');
CREATE INDEX ai_jobs_of_tenant ON outlive.ai_jobs (tenant_id, id);
CREATE INDEX ai_jobs_of_user ON outlive.ai_jobs (tenant_id, user_id, id) WHERE user_id IS NOT NULL;

CREATE TABLE outlive.job_contents (
    job_id        uuid PRIMARY KEY REFERENCES outlive.ai_jobs ON DELETE CASCADE,
    input         json NOT NULL,
    metadata      json NOT NULL DEFAULT '{}',
    result        json,
    error_message text,
    checkpoint    json
);
COMMENT ON TABLE outlive.job_contents IS 'all that a user wrote or got stands here and in job_events and nowhere else';

-- No index on lease_until or last_seq: with one, none of 2,000 flushes was a HOT update; without, all were.
CREATE TABLE outlive.job_leases (
    job_id      uuid PRIMARY KEY REFERENCES outlive.ai_jobs,
    run_token   uuid NOT NULL,
    attempt     smallint NOT NULL,
    worker      text NOT NULL,
    lease_until timestamptz NOT NULL,
    last_seq    integer NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlive.job_attempts (
    job_id      uuid NOT NULL REFERENCES outlive.ai_jobs,
    attempt     smallint NOT NULL,
    worker      text NOT NULL,
    run_token   uuid NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    outcome     text NOT NULL DEFAULT 'running'
        CHECK (outcome IN ('running', 'succeeded', 'failed', 'unknown', 'lost', 'released', 'cancelled')),
    counted     boolean NOT NULL DEFAULT true,
    PRIMARY KEY (job_id, attempt),
    CHECK ((outcome = 'running') = (finished_at IS NULL))
);

CREATE TABLE outlive.provider_calls (
    job_id              uuid NOT NULL,
    attempt             smallint NOT NULL,
    call                smallint NOT NULL,
    provider            text NOT NULL,
    model               text,
    provider_request_id text,
    started_at          timestamptz NOT NULL DEFAULT now(),
    sent_at             timestamptz,
    first_chunk_at      timestamptz,
    finished_at         timestamptz,
    outcome             text NOT NULL DEFAULT 'running'
        CHECK (outcome IN ('running', 'succeeded', 'failed', 'unknown', 'cancelled', 'cancel_unconfirmed')),
    error_class         text,
    error_code          text,
    http_status         smallint,
    finish_reason       text,
    input_tokens        bigint,
    output_tokens       bigint,
    usage_source        text,
    cost_usd            numeric(18, 9) CHECK (cost_usd >= 0),
    cost_source         text CHECK (cost_source IN ('provider', 'local', 'estimated')),
    cost_is_lower_bound boolean NOT NULL DEFAULT false,
    resolved_outcome    text,
    resolved_at         timestamptz,
    PRIMARY KEY (job_id, attempt, call),
    FOREIGN KEY (job_id, attempt) REFERENCES outlive.job_attempts,
    CHECK ((outcome = 'running') = (finished_at IS NULL)),
    CHECK ((cost_usd IS NULL) = (cost_source IS NULL))
);
COMMENT ON TABLE outlive.provider_calls IS 'one row for each request on the wire, written before it is sent, closed once';
COMMENT ON COLUMN outlive.provider_calls.cost_usd IS 'NULL is not known, which is not 0';

-- No foreign key to ai_jobs: it would cost 56 bytes of WAL an event and guard nothing that the lease does not.
CREATE TABLE outlive.job_events (
    job_id  uuid NOT NULL,
    seq     integer NOT NULL CHECK (seq > 0),
    kind    outlive.event_kind NOT NULL,
    attempt smallint NOT NULL,
    data    text NOT NULL,
    PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);
COMMENT ON COLUMN outlive.job_events.attempt IS '0 before the first claim';
COMMENT ON COLUMN outlive.job_events.data IS 'for a chunk the text itself, for every other kind one line of JSON';
CREATE UNIQUE INDEX job_events_one_end ON outlive.job_events (job_id)
    WHERE kind IN ('succeeded', 'failed', 'cancelled');

-- LIKE and ATTACH, because CREATE ... PARTITION OF waits for every writer of the table and makes later ones
-- wait behind it; the CHECK spares ATTACH the scan.
CREATE FUNCTION outlive.make_event_partition(name text, lower_id uuid, upper_id uuid) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass(format('outlive.%I', name)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE outlive.%I (LIKE outlive.job_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS,'
        ' CONSTRAINT bounds CHECK (job_id >= %L AND job_id < %L))'
        ' WITH (autovacuum_vacuum_insert_scale_factor = 0.05)', name, lower_id, upper_id);
    EXECUTE format('ALTER TABLE outlive.job_events ATTACH PARTITION outlive.%I FOR VALUES FROM (%L) TO (%L)',
        name, lower_id, upper_id);
    RETURN true;
-- Workers look once an hour, so they meet; whoever comes second waits for the first and then ends here.
EXCEPTION WHEN duplicate_table OR duplicate_object OR unique_violation THEN
    RETURN false;
END $$;

CREATE FUNCTION outlive.rfc3339(moment timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

CREATE TABLE outlive.workers (
    name       text PRIMARY KEY,
    kinds      text[] NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE outlive.workers IS 'who is there, for waiting_for; nothing is decided by it: leases say who holds a job';

-- A worker that has not been seen for a minute is gone: it says so every 15 s.
CREATE VIEW outlive.jobs_seen AS
SELECT j.id, j.tenant_id, j.user_id, j.kind, j.status::text, j.priority, j.provider, j.model, j.attempts,
    j.max_attempts, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.retry_of, j.created_at, j.run_at,
    j.started_at, j.finished_at, j.error_code, j.error_class, coalesce(l.last_seq, j.last_seq) AS last_event_id,
    c.metadata, c.result, c.error_message,
    CASE j.status
        WHEN 'scheduled' THEN 'run_at'
        WHEN 'queued' THEN (SELECT 'no_worker' WHERE NOT EXISTS (SELECT FROM outlive.workers w
            WHERE j.kind = ANY(w.kinds) AND w.seen_at > now() - interval '60 s'))
    END AS waiting_for
FROM outlive.ai_jobs j
LEFT JOIN outlive.job_leases l ON l.job_id = j.id
LEFT JOIN outlive.job_contents c ON c.job_id = j.id;
