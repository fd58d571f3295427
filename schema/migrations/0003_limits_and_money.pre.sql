-- Who may run how much, whose turn it is, and what it may cost.

-- ---------------------------------------------------------------- tenants, kinds, workers

ALTER TABLE outlive.tenants
    ADD COLUMN weight       smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
    ADD COLUMN max_queued   integer CHECK (max_queued >= 0),
    ADD COLUMN quota_usd    numeric(18, 9) CHECK (quota_usd >= 0),
    ADD COLUMN quota_period text CHECK (quota_period IN ('total', 'month')),
    ADD CONSTRAINT tenants_quota CHECK ((quota_usd IS NULL) = (quota_period IS NULL));
COMMENT ON COLUMN outlive.tenants.weight IS 'its share of the starts, where several tenants wait';

ALTER TABLE outlive.job_kinds
    ADD COLUMN price_usd     numeric(18, 9) CHECK (price_usd >= 0),
    ADD COLUMN max_cost_usd  numeric(18, 9) CHECK (max_cost_usd > 0),
    ADD COLUMN calls         smallint CHECK (calls > 0),
    ADD COLUMN prices        json NOT NULL DEFAULT '{}';
COMMENT ON COLUMN outlive.job_kinds.price_usd IS 'what an accepted result costs, whatever its calls did; null = what they cost';
COMMENT ON COLUMN outlive.job_kinds.max_cost_usd IS 'what a job may cost that does not say so itself';
COMMENT ON COLUMN outlive.job_kinds.calls IS 'how many calls one execution makes at most; null = no bound';
COMMENT ON COLUMN outlive.job_kinds.prices IS '{provider: {model: {"input": dollars a million tokens, "output": the same, "context": tokens of one call or null}}}; the model is empty where the provider has none';

ALTER TABLE outlive.workers ADD COLUMN providers text[];
COMMENT ON COLUMN outlive.workers.providers IS 'null for a worker from before this column: it may have any';

-- ---------------------------------------------------------------- jobs

ALTER TABLE outlive.ai_jobs
    ADD COLUMN max_cost_usd  numeric(18, 9),
    ADD COLUMN price_usd     numeric(18, 9),
    ADD COLUMN call_usd      numeric(18, 9),
    ADD COLUMN reserved_usd  numeric(18, 9),
    ADD COLUMN idle_releases smallint NOT NULL DEFAULT 0,
    ADD COLUMN throttled_s   integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN outlive.ai_jobs.max_cost_usd IS 'past this the job is stopped; null = no such bound';
COMMENT ON COLUMN outlive.ai_jobs.price_usd IS 'the fixed price of its kind when it was created';
COMMENT ON COLUMN outlive.ai_jobs.call_usd IS 'what one call may cost at worst; null = no bound is known';
COMMENT ON COLUMN outlive.ai_jobs.reserved_usd IS 'what was reserved at creation; null = no amount could be had';
COMMENT ON COLUMN outlive.ai_jobs.idle_releases IS 'hand-backs in a row in which nothing was written';
COMMENT ON COLUMN outlive.ai_jobs.throttled_s IS 'how long it was made to wait by throttling, in all';

-- One lane is what shares the fate of waiting: tenant, kind and provider. Its first entry is its next job, and the
-- next lane is one probe away, so a claim costs what there are lanes, not what there are jobs.
CREATE INDEX ai_jobs_lanes ON outlive.ai_jobs (tenant_id, kind, coalesce(provider, ''), priority DESC, run_at, id)
    WHERE status = 'queued';
-- For max_queued; what is queued is counted in the lanes.
CREATE INDEX ai_jobs_scheduled_of_tenant ON outlive.ai_jobs (tenant_id) WHERE status = 'scheduled';

-- For statistics of a window: jobs end in the order in which their rows are written, nearly. 48 kB at a million jobs,
-- where a btree has 21 MB that each end would have to keep up.
CREATE INDEX ai_jobs_finished ON outlive.ai_jobs USING brin (finished_at) WITH (pages_per_range = 32);

ALTER TABLE outlive.provider_calls ADD COLUMN kept boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN outlive.provider_calls.kept IS 'a checkpoint stands on it: a later attempt does not pay for it again, and an accepted result rests on it';

-- ---------------------------------------------------------------- limits

CREATE TABLE outlive.limits (
    scope text PRIMARY KEY CHECK (scope = 'global' OR scope ~ '^(provider|tenant):.{1,255}$'),
    most  integer NOT NULL CHECK (most BETWEEN 0 AND 10000),
    by_operator boolean NOT NULL
);
COMMENT ON COLUMN outlive.limits.by_operator IS 'false = from a providers file; what an operator has set stands';

-- Counting what runs overshoots, 24 for a limit of 3: a snapshot does not see the claims that are being committed.
-- A row for each slot cannot be held twice. No index on holder: with one no change of it would be HOT.
CREATE TABLE outlive.permits (
    scope   text NOT NULL REFERENCES outlive.limits ON DELETE CASCADE,
    slot    integer NOT NULL CHECK (slot > 0),
    holder  uuid,
    surplus boolean NOT NULL DEFAULT false,
    PRIMARY KEY (scope, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN outlive.permits.holder IS 'the run token of who holds it; a second release finds another holder or none';
COMMENT ON COLUMN outlive.permits.surplus IS 'held when the limit was lowered under it: until it is given back nothing new starts in this scope';
CREATE INDEX permits_surplus ON outlive.permits (scope) WHERE surplus;

ALTER TABLE outlive.job_leases ADD COLUMN scopes text[], ADD COLUMN slots integer[];
COMMENT ON COLUMN outlive.job_leases.scopes IS 'the permits that this run holds, with slots; null = none';

-- Checking these two took a third of a claim, and guarded nothing: only a claim inserts here, with the job's row locked.
ALTER TABLE outlive.job_leases DROP CONSTRAINT job_leases_job_id_fkey;
ALTER TABLE outlive.job_attempts DROP CONSTRAINT job_attempts_job_id_fkey, ADD COLUMN reason text;
COMMENT ON COLUMN outlive.job_attempts.reason IS 'why it was begun, as its event says; null = begun by a worker from before 0003';

-- Claims hold this shared, a change of limits alone: no claim decides by what a limit was a moment ago.
CREATE FUNCTION outlive.limits_lock() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 4822911763207731;

CREATE FUNCTION outlive.is_full(of_scope text) RETURNS boolean LANGUAGE sql STABLE
    RETURN NOT EXISTS (SELECT FROM outlive.permits WHERE scope = of_scope AND holder IS NULL AND NOT surplus)
        OR EXISTS (SELECT FROM outlive.permits WHERE scope = of_scope AND surplus AND holder IS NOT NULL);

-- Makes the rows of a scope fit its limit. What is held stays; where that is more than the limit, the rest is surplus.
CREATE FUNCTION outlive.fit_permits(of_scope text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    allowed integer;
    held    integer;
BEGIN
    PERFORM pg_advisory_xact_lock(outlive.limits_lock());
    -- Waits for the runs that are just giving one back.
    PERFORM FROM outlive.permits WHERE scope = of_scope ORDER BY slot FOR UPDATE;
    DELETE FROM outlive.permits WHERE scope = of_scope AND holder IS NULL;
    SELECT most INTO allowed FROM outlive.limits WHERE scope = of_scope;
    SELECT count(*) INTO held FROM outlive.permits WHERE scope = of_scope;
    UPDATE outlive.permits p SET surplus = ranked.rank > allowed
    FROM (SELECT slot, row_number() OVER (ORDER BY slot) AS rank FROM outlive.permits WHERE scope = of_scope) AS ranked
    WHERE p.scope = of_scope AND p.slot = ranked.slot AND p.surplus <> (ranked.rank > allowed);
    INSERT INTO outlive.permits (scope, slot)
    SELECT of_scope, n FROM generate_series(1, allowed) AS n
    WHERE NOT EXISTS (SELECT FROM outlive.permits WHERE scope = of_scope AND slot = n)
    ORDER BY n LIMIT greatest(0, allowed - held);
END $$;

-- A new limit counts what runs already: each such run gets a permit, beyond the limit if need be.
CREATE FUNCTION outlive.adopt_runs(of_scope text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run record;
    next_slot integer;
BEGIN
    PERFORM pg_advisory_xact_lock(outlive.limits_lock());
    SELECT coalesce(max(slot), 0) INTO next_slot FROM outlive.permits WHERE scope = of_scope;
    FOR run IN
        SELECT l.job_id, l.run_token FROM outlive.job_leases l
        JOIN outlive.ai_jobs j ON j.id = l.job_id JOIN outlive.tenants t ON t.id = j.tenant_id
        WHERE of_scope IN ('global', 'provider:' || j.provider, 'tenant:' || t.name)
            AND NOT EXISTS (SELECT FROM outlive.permits p WHERE p.scope = of_scope AND p.holder = l.run_token)
        ORDER BY l.job_id FOR UPDATE OF l
    LOOP
        next_slot := next_slot + 1;
        INSERT INTO outlive.permits (scope, slot, holder) VALUES (of_scope, next_slot, run.run_token);
        -- Instead of what it may hold of an earlier limit of this scope.
        UPDATE outlive.job_leases l SET (scopes, slots) = (
            SELECT array_agg(h.scope ORDER BY h.scope), array_agg(h.slot ORDER BY h.scope) FROM (
                SELECT scope, slot FROM unnest(l.scopes, l.slots) AS u(scope, slot) WHERE scope <> of_scope
                UNION ALL SELECT of_scope, next_slot
            ) AS h
        ) WHERE l.job_id = run.job_id;
    END LOOP;
END $$;

-- What a run held goes with its lease, whoever ends that, a worker from before this migration too. By a statement of its
-- own, which sees the permits of a limit that was set after the statement of the end had begun: that one would leave them
-- held for ever.
CREATE FUNCTION outlive.give_back_permits() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM gone WHERE gone.scopes IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    -- In the lock order, which such a join keeps.
    WITH held AS MATERIALIZED (
        SELECT gone.run_token, h.scope, h.slot FROM gone CROSS JOIN LATERAL unnest(gone.scopes, gone.slots) AS h(scope, slot)
        ORDER BY h.scope, h.slot
    )
    UPDATE outlive.permits p SET holder = NULL FROM held
    WHERE p.scope = held.scope AND p.slot = held.slot AND p.holder = held.run_token;
    RETURN NULL;
END $$;
CREATE TRIGGER job_leases_give_back AFTER DELETE ON outlive.job_leases REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION outlive.give_back_permits();

-- ---------------------------------------------------------------- the claim

-- `start_before` bounds the first start only: a later attempt that it kept from being taken would wait for ever.
CREATE FUNCTION outlive.may_start(attempt smallint, attempts smallint, max_attempts smallint, start_before timestamptz)
    RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN attempts < max_attempts AND (start_before IS NULL OR start_before > now() OR attempt > 0);

-- Takes up to `wanted` jobs for a worker: job, permits, lease, attempt and `attempt` event in one commit.
-- Tenants take turns by start tags, as in start-time fair queueing (Goyal, Vin and Cheng, 1996): a tenant's next job
-- bears the tag of its last plus 1 / weight, never less than `virtual_now`, and the lowest tag is next. The worker
-- remembers the tags (`served`, `tags`), so there is no row that all claims would queue on; every worker being fair,
-- all together are. Within a tenant priority decides, then age. Nothing waits for a lock but for a change of limits.
-- What others are at, and what has no permit left, is passed over, and then whoever is behind it is looked at.
-- A last row without a job says that others were at what is left: ask again.
CREATE FUNCTION outlive.claim_jobs(
    worker text, lease_s double precision, kinds text[], providers text[], wanted integer,
    virtual_now double precision, served uuid[], tags double precision[]
) RETURNS TABLE (
    job_id uuid, run_token uuid, attempt smallint, attempts smallint, max_attempts smallint, tenant_id uuid,
    tag double precision, weight smallint, kind text, provider text, model text, on_unknown text, last_seq integer,
    traceparent text, idle_releases smallint, throttled_s integer, max_cost_usd numeric, call_usd numeric,
    spent_usd numeric, unknown_calls bigint, input json, checkpoint json
)
-- Statistics of a table that has just been filled, or emptied, would now and then choose to read all of it, or to read
-- and sort all that is queued once for each lane, and a session keeps its plan for hours. Only the index has the order.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_incremental_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    -- Looked at beyond what is wanted, because others may be at the first ones; each further round looks further.
    spare   integer := 8;
    -- From the third round on turns are given out that may not be used: what then is one tenant's too much now is the
    -- others' by its tag in the next claim.
    lavish  integer := 0;
    -- Who is not ahead is as near as can be: past so many of them the walk along the lanes stops, 25 us each. They are
    -- ahead once they were served, so the next ones come, at the latest when all were.
    ties_most constant integer := 200;
    nobody  constant uuid := '00000000-0000-0000-0000-000000000000';
    each    record;
    got     text;
    token   uuid;
    need    integer;
    missed  integer;
    bound   text[];
    closed  text[] := '{}';
    crowded boolean := false;
    busy    uuid[] := '{}';
    ids     uuid[] := '{}';
    tokens  uuid[] := '{}';
    owners  uuid[] := '{}';
    weights smallint[] := '{}';
    got_by  integer[];
    want_tokens uuid[] := '{}';
    want_scopes text[] := '{}';
    refused     uuid[] := '{}';
    held_tokens uuid[] := '{}';
    held_scopes text[] := '{}';
    held_slots  integer[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock_shared(outlive.limits_lock());
    -- Of all and of providers; a tenant's is looked up with it.
    SELECT coalesce(array_agg(scope), '{}'), coalesce(array_agg(scope) FILTER (WHERE outlive.is_full(scope)), '{}')
    INTO bound, closed FROM outlive.limits WHERE scope < 'tenant:';
    FOR round IN 1..4 LOOP
        EXIT WHEN 'global' = ANY (closed);
        need := wanted - cardinality(ids);
        got_by := array_fill(0, ARRAY[need + spare]);
        missed := cardinality(busy) + cardinality(closed);
        FOR each IN
            WITH RECURSIVE lane AS (
                SELECT nobody AS tenant_id, '' AS kind, '' AS provider, 0::smallint AS priority, now() AS run_at,
                    nobody AS id, 1::smallint AS weight, NULL::text AS own_scope, false AS is_open, 0 AS ties
                UNION ALL
                SELECT head.*, t.weight, own.scope, may.be_taken,
                    lane.ties + (may.be_taken AND head.tenant_id <> lane.tenant_id
                        AND head.tenant_id <> ALL (served || owners))::integer
                FROM lane CROSS JOIN LATERAL (
                    SELECT j.tenant_id, j.kind, coalesce(j.provider, '') AS provider, j.priority, j.run_at, j.id
                    FROM outlive.ai_jobs j
                    WHERE j.status = 'queued' AND j.id <> ALL (ids || busy)
                        AND outlive.may_start(j.attempt, j.attempts, j.max_attempts, j.start_before)
                        AND (j.tenant_id, j.kind, coalesce(j.provider, '')) > (lane.tenant_id, lane.kind, lane.provider)
                    ORDER BY j.tenant_id, j.kind, coalesce(j.provider, ''), j.priority DESC, j.run_at, j.id LIMIT 1
                ) AS head JOIN outlive.tenants t ON t.id = head.tenant_id
                LEFT JOIN outlive.limits own ON own.scope = 'tenant:' || t.name
                CROSS JOIN LATERAL (
                    SELECT head.kind = ANY (kinds) AND (head.provider = '' OR head.provider = ANY (providers))
                        AND 'provider:' || head.provider <> ALL (closed)
                        AND (own.scope IS NULL OR (own.scope <> ALL (closed) AND NOT outlive.is_full(own.scope))) AS be_taken
                ) AS may
                WHERE lane.ties < need + spare + ties_most
            ), open_lane AS MATERIALIZED (
                SELECT lane.*, greatest(virtual_now, s.tag) + coalesce(had.jobs, 0) / lane.weight::double precision AS tag,
                    array_remove(ARRAY[
                        CASE WHEN 'global' = ANY (bound) THEN 'global' END,
                        CASE WHEN 'provider:' || lane.provider = ANY (bound) THEN 'provider:' || lane.provider END,
                        lane.own_scope
                    ], NULL) AS scopes,
                    row_number() OVER (PARTITION BY lane.tenant_id ORDER BY lane.priority DESC, lane.run_at, lane.id) AS place
                FROM lane LEFT JOIN unnest(served, tags) AS s(tenant_id, tag) ON s.tenant_id = lane.tenant_id
                LEFT JOIN (SELECT o.id, count(*) AS jobs FROM unnest(owners) AS o(id) GROUP BY o.id) AS had
                    ON had.id = lane.tenant_id
                -- The tenant at which the walk stopped has lanes that were not seen.
                WHERE lane.is_open AND lane.ties < need + spare + ties_most
            ), near AS (
                SELECT tenant_id FROM open_lane WHERE place = 1
                ORDER BY tag, priority DESC, run_at, id LIMIT need + spare
            ), waiting AS (
                SELECT o.tenant_id, o.weight, o.scopes, o.tag, j.*,
                    row_number() OVER (PARTITION BY o.tenant_id ORDER BY j.priority DESC, j.run_at, j.id) AS place
                FROM near JOIN open_lane o USING (tenant_id) CROSS JOIN LATERAL (
                    SELECT id, priority, run_at FROM outlive.ai_jobs j
                    WHERE j.status = 'queued' AND j.tenant_id = o.tenant_id AND j.kind = o.kind
                        AND coalesce(j.provider, '') = o.provider AND j.id <> ALL (ids || busy)
                        AND outlive.may_start(j.attempt, j.attempts, j.max_attempts, j.start_before)
                    ORDER BY priority DESC, run_at, id LIMIT need + spare
                ) AS j
                WHERE o.place <= need + spare
            ), turn AS (
                SELECT *, row_number() OVER (
                    ORDER BY tag + (place - 1) / weight::double precision, priority DESC, run_at, id
                ) AS rank
                FROM waiting WHERE place <= need + spare
            )
            SELECT id, tenant_id, scopes, weight, dense_rank() OVER (ORDER BY tenant_id) AS tenant,
                count(*) FILTER (WHERE rank <= need + lavish) OVER (PARTITION BY tenant_id) AS turns
            FROM turn ORDER BY rank
        LOOP
            EXIT WHEN cardinality(ids) = wanted;
            CONTINUE WHEN got_by[each.tenant] >= each.turns OR each.scopes && closed;
            PERFORM FROM outlive.ai_jobs j WHERE j.id = each.id AND j.status = 'queued' FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                busy := busy || each.id;
                CONTINUE;
            END IF;
            token := gen_random_uuid();
            ids := ids || each.id;
            tokens := tokens || token;
            owners := owners || each.tenant_id;
            weights := weights || each.weight;
            got_by[each.tenant] := got_by[each.tenant] + 1;
            want_scopes := want_scopes || each.scopes;
            want_tokens := want_tokens || array_fill(token, ARRAY[cardinality(each.scopes)]);
        END LOOP;
        -- All of a scope at once, in the lock order: one by one was a third of a claim.
        FOR got IN SELECT DISTINCT w.scope FROM unnest(want_scopes) AS w(scope) ORDER BY w.scope LOOP
            WITH wanting AS MATERIALIZED (
                SELECT w.token_of, row_number() OVER (ORDER BY w.place) AS n
                FROM unnest(want_tokens, want_scopes) WITH ORDINALITY AS w(token_of, scope_of, place)
                WHERE w.scope_of = got AND w.token_of <> ALL (refused)
            ), free AS MATERIALIZED (
                SELECT f.slot, row_number() OVER (ORDER BY f.slot) AS n FROM (
                    SELECT p.slot FROM outlive.permits p WHERE p.scope = got AND p.holder IS NULL AND NOT p.surplus
                    ORDER BY p.slot LIMIT (SELECT count(*) FROM wanting) FOR UPDATE SKIP LOCKED
                ) AS f
            ), pair AS MATERIALIZED (
                SELECT w.token_of, f.slot FROM wanting w LEFT JOIN free f ON f.n = w.n
            ), held AS (
                UPDATE outlive.permits p SET holder = pair.token_of FROM pair WHERE p.scope = got AND p.slot = pair.slot
            )
            SELECT held_tokens || coalesce(array_agg(token_of) FILTER (WHERE slot IS NOT NULL), '{}'),
                held_scopes || array_fill(got, ARRAY[count(slot)::integer]),
                held_slots || coalesce(array_agg(slot) FILTER (WHERE slot IS NOT NULL), '{}'),
                refused || coalesce(array_agg(token_of) FILTER (WHERE slot IS NULL), '{}'),
                CASE WHEN count(slot) < count(*) THEN closed || got ELSE closed END
            INTO held_tokens, held_scopes, held_slots, refused, closed FROM pair;
            crowded := crowded OR (got = ANY (closed) AND NOT outlive.is_full(got));
        END LOOP;
        want_tokens := '{}';
        want_scopes := '{}';
        IF cardinality(refused) > 0 THEN
            UPDATE outlive.permits p SET holder = NULL
            FROM unnest(held_tokens, held_scopes, held_slots) AS h(token_of, scope_of, slot_of)
            WHERE h.token_of = ANY (refused) AND p.scope = h.scope_of AND p.slot = h.slot_of;
            SELECT coalesce(array_agg(r.id ORDER BY r.place), '{}'), coalesce(array_agg(r.token ORDER BY r.place), '{}'),
                coalesce(array_agg(r.owner ORDER BY r.place), '{}'), coalesce(array_agg(r.weight ORDER BY r.place), '{}')
            INTO ids, tokens, owners, weights
            FROM unnest(ids, tokens, owners, weights) WITH ORDINALITY AS r(id, token, owner, weight, place)
            WHERE r.token <> ALL (refused);
            refused := '{}';
        END IF;
        EXIT WHEN cardinality(ids) = wanted OR missed = cardinality(busy) + cardinality(closed);
        lavish := CASE WHEN round = 1 THEN 0 ELSE spare * 8 END;
        spare := spare * 8;
    END LOOP;

    RETURN QUERY
    WITH ready AS (
        SELECT r.id, r.run_token, r.weight, r.place, greatest(virtual_now, s.tag)
            + (row_number() OVER (PARTITION BY r.owner ORDER BY r.place) - 1) / r.weight::double precision AS tag
        FROM unnest(ids, tokens, owners, weights) WITH ORDINALITY AS r(id, run_token, owner, weight, place)
        LEFT JOIN unnest(served, tags) AS s(tenant_id, tag) ON s.tenant_id = r.owner
    ), taken AS (
        UPDATE outlive.ai_jobs j
        SET status = 'running', attempt = j.attempt + 1, attempts = j.attempts + 1, last_seq = j.last_seq + 1,
            started_at = coalesce(j.started_at, now())
        FROM ready WHERE j.id = ready.id
        RETURNING j.*, ready.run_token, ready.tag, ready.weight, ready.place
    ), lease AS (
        INSERT INTO outlive.job_leases (job_id, run_token, attempt, worker, lease_until, last_seq, scopes, slots)
        SELECT t.id, t.run_token, t.attempt, worker, clock_timestamp() + make_interval(secs => lease_s), t.last_seq,
            h.scopes, h.slots
        FROM taken t LEFT JOIN LATERAL (
            SELECT array_agg(scope_of) AS scopes, array_agg(slot_of) AS slots
            FROM unnest(held_tokens, held_scopes, held_slots) AS u(token_of, scope_of, slot_of)
            WHERE u.token_of = t.run_token
        ) AS h ON true
    ), begun AS (
        INSERT INTO outlive.job_attempts (job_id, attempt, worker, run_token, reason)
        SELECT t.id, t.attempt, worker, t.run_token, t.next_reason FROM taken t
    ), event AS (
        INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
        SELECT t.id, t.last_seq, 'attempt', t.attempt,
            jsonb_build_object('attempt', t.attempt, 'resumes_after',
                -- Nothing is void where the same generation goes on.
                CASE t.next_reason WHEN 'reattached' THEN t.last_seq - 1 ELSE t.resumes_after END, 'reason', t.next_reason)
        FROM taken t
    )
    SELECT t.id, t.run_token, t.attempt, t.attempts, t.max_attempts, t.tenant_id, t.tag, t.weight, t.kind, t.provider,
        t.model, t.on_unknown, t.last_seq, t.traceparent, t.idle_releases, t.throttled_s, t.max_cost_usd, t.call_usd,
        p.spent_usd, p.unknown_calls, c.input, c.checkpoint
    FROM taken t JOIN outlive.job_contents c ON c.job_id = t.id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(cost_usd), 0) AS spent_usd,
            count(*) FILTER (WHERE cost_usd IS NULL OR cost_is_lower_bound) AS unknown_calls
        FROM outlive.provider_calls p WHERE p.job_id = t.id AND t.attempt > 1
    ) AS p
    ORDER BY t.tag, t.place;
    IF cardinality(ids) < wanted AND (crowded OR cardinality(busy) > 0) THEN
        RETURN NEXT;
    END IF;
END $$;

-- ---------------------------------------------------------------- money

-- What a job was promised and what became of it. `amount_usd` is null where no bound could be had.
CREATE TABLE outlive.quota_reservations (
    job_id      uuid PRIMARY KEY REFERENCES outlive.ai_jobs,
    tenant_id   uuid NOT NULL REFERENCES outlive.tenants,
    month       text NOT NULL,
    amount_usd  numeric(18, 9) CHECK (amount_usd >= 0),
    state       text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'charged', 'released')),
    charged_usd numeric(18, 9) CHECK (charged_usd >= 0),
    settled_at  timestamptz,
    CHECK ((state = 'open') = (settled_at IS NULL)),
    CHECK (charged_usd <= amount_usd)
) WITH (fillfactor = 80);
COMMENT ON COLUMN outlive.quota_reservations.month IS 'of the creation, UTC: the period that the job belongs to, whenever it ends';
COMMENT ON COLUMN outlive.quota_reservations.charged_usd IS 'null with state charged: what it cost is not known';
CREATE INDEX quota_reservations_open ON outlive.quota_reservations (tenant_id) WHERE state = 'open';

-- Only ever inserted into. Its sums are the truth; an account is a copy of them that a creation can lock.
CREATE TABLE outlive.quota_ledger (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT now(),
    tenant_id    uuid NOT NULL REFERENCES outlive.tenants,
    month        text NOT NULL,
    job_id       uuid NOT NULL,
    entry        text NOT NULL CHECK (entry IN ('reserve', 'charge', 'release', 'adjust')),
    reserved_usd numeric(18, 9) NOT NULL,
    charged_usd  numeric(18, 9) NOT NULL
);
COMMENT ON COLUMN outlive.quota_ledger.reserved_usd IS 'by how much this entry changes what is reserved; negative when it is settled';
CREATE UNIQUE INDEX quota_ledger_one_reserve ON outlive.quota_ledger (job_id) WHERE entry = 'reserve';
CREATE UNIQUE INDEX quota_ledger_one_settle ON outlive.quota_ledger (job_id) WHERE entry IN ('charge', 'release');
CREATE INDEX quota_ledger_of_tenant ON outlive.quota_ledger (tenant_id, month);

CREATE FUNCTION outlive.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'quota_ledger is only added to; write an entry that corrects the other one'
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER quota_ledger_is_closed BEFORE UPDATE OR DELETE OR TRUNCATE ON outlive.quota_ledger
    EXECUTE FUNCTION outlive.refuse_change();

-- Only of tenants with a quota: who has none queues on no row. `period` is 'total', or a month.
-- No CHECK says what may stand in it: a copy that somebody has damaged must not keep a job from ending.
CREATE TABLE outlive.quota_accounts (
    tenant_id    uuid NOT NULL REFERENCES outlive.tenants,
    period       text NOT NULL,
    reserved_usd numeric(30, 9) NOT NULL DEFAULT 0,
    charged_usd  numeric(30, 9) NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, period)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

CREATE FUNCTION outlive.this_month() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM');

-- Whoever writes to a tenant's books holds this shared, whoever makes its account anew alone, until the commit: an
-- account never misses an entry. Not the tenant's row: those who share a row let nobody in who wants it alone.
CREATE FUNCTION outlive.books_lock(of_tenant uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended('outlive books ' || of_tenant::text, 0);
CREATE FUNCTION outlive.enter_books(of_tenant uuid) RETURNS void LANGUAGE sql
    RETURN pg_advisory_xact_lock_shared(outlive.books_lock(of_tenant));

-- Whether a creation need not be admitted, looked at behind the lock: what the creating statement itself sees may be
-- from before a quota that has just been set. Volatile, so that it sees it.
CREATE FUNCTION outlive.creates_freely(of_tenant uuid) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM outlive.enter_books(of_tenant);
    RETURN EXISTS (SELECT FROM outlive.tenants WHERE id = of_tenant AND max_queued IS NULL AND quota_usd IS NULL);
END $$;

-- What a commit that ends jobs holds before it changes the first account: two that end jobs of the same tenants would
-- deadlock where each took them in the order of its jobs.
CREATE FUNCTION outlive.hold_accounts(of_tenant uuid) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    ended uuid[];
BEGIN
    IF current_setting('outlive.accounts_held_by', true) = pg_current_xact_id()::text THEN
        RETURN;
    END IF;
    PERFORM set_config('outlive.accounts_held_by', pg_current_xact_id()::text, true);
    SELECT array_agg(DISTINCT tenant_id ORDER BY tenant_id) INTO ended
    FROM (SELECT tenant_id FROM outlive.ai_jobs WHERE ended_xid = pg_current_xact_id() UNION SELECT of_tenant) AS each;
    PERFORM outlive.enter_books(t.id) FROM unnest(ended) WITH ORDINALITY AS t(id, place) ORDER BY place;
    PERFORM FROM outlive.quota_accounts WHERE tenant_id = ANY (ended) ORDER BY tenant_id, period FOR NO KEY UPDATE;
END $$;

-- What an ended job pays, and whether it pays at all; a bill that is null is not known.
-- An accepted result costs its fixed price, or what the calls cost on which it rests, or, where that is not known, what
-- was reserved. A job that was cancelled or stopped at its own limit pays for what it put out, as far as that is known.
-- Nobody pays more than was reserved, or for a job that failed. `bill` is of any size until then: the sum of what a
-- provider claims may be more than a column holds, and the job has to end.
CREATE FUNCTION outlive.bill_of(job outlive.ai_jobs, reserved numeric, OUT charges boolean, OUT bill numeric)
LANGUAGE plpgsql AS $$
BEGIN
    charges := true;
    IF job.status = 'succeeded' THEN
        SELECT coalesce(job.price_usd, CASE
            WHEN bool_and(c.cost_usd IS NOT NULL AND NOT c.cost_is_lower_bound) IS NOT FALSE
                THEN coalesce(sum(c.cost_usd), 0)
            ELSE reserved
        END) INTO bill
        FROM outlive.provider_calls c
        WHERE c.job_id = job.id AND c.outcome = 'succeeded' AND (c.kept OR c.attempt = job.attempt);
    ELSIF (job.status = 'cancelled' OR job.error_class = 'budget') AND EXISTS (
        -- What its reader still holds: the rest of earlier attempts is void.
        SELECT FROM outlive.job_events e WHERE e.job_id = job.id AND e.kind IN ('chunk', 'channel', 'data')
            AND (e.attempt = job.attempt OR e.seq <= job.resumes_after)
    ) THEN
        SELECT CASE WHEN count(*) = 0 THEN 0 ELSE sum(c.cost_usd) END INTO bill
        FROM outlive.provider_calls c WHERE c.job_id = job.id AND (c.kept OR c.attempt = job.attempt);
    ELSE
        charges := false;
        bill := 0;
    END IF;
    bill := CASE WHEN bill IS NOT NULL THEN least(bill, coalesce(reserved, 999999999.999999999)) END;
END $$;

-- Behind hold_accounts and an entry in the ledger.
CREATE FUNCTION outlive.book(of_tenant uuid, of_month text, reserved numeric, charged numeric) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE outlive.quota_accounts a
    SET reserved_usd = a.reserved_usd + reserved, charged_usd = a.charged_usd + charged
    WHERE a.tenant_id = of_tenant AND a.period IN ('total', of_month);
    IF NOT FOUND THEN
        -- Of a job without a bound, from before its tenant had a quota.
        INSERT INTO outlive.quota_accounts AS a (tenant_id, period, reserved_usd, charged_usd)
        SELECT t.id, CASE t.quota_period WHEN 'total' THEN 'total' ELSE of_month END, reserved, charged
        FROM outlive.tenants t WHERE t.id = of_tenant AND t.quota_usd IS NOT NULL
        ON CONFLICT (tenant_id, period) DO UPDATE
        SET reserved_usd = a.reserved_usd + excluded.reserved_usd, charged_usd = a.charged_usd + excluded.charged_usd;
    END IF;
END $$;

-- However a job ends, its money is settled in the commit of the end, once: what is open becomes charged or released.
CREATE FUNCTION outlive.settle_ended_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    promise outlive.quota_reservations;
    due     record;
BEGIN
    SELECT * INTO promise FROM outlive.quota_reservations WHERE job_id = NEW.id AND state = 'open' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    due := outlive.bill_of(NEW, promise.amount_usd);
    UPDATE outlive.quota_reservations
    SET state = CASE WHEN due.charges THEN 'charged' ELSE 'released' END, charged_usd = due.bill, settled_at = now()
    WHERE job_id = NEW.id;
    IF coalesce(promise.amount_usd, due.bill, 0) = 0 AND coalesce(due.bill, 0) = 0 THEN
        RETURN NULL;
    END IF;
    PERFORM outlive.hold_accounts(promise.tenant_id);
    INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)
    VALUES (promise.tenant_id, promise.month, NEW.id, CASE WHEN due.charges THEN 'charge' ELSE 'release' END,
        -coalesce(promise.amount_usd, 0), coalesce(due.bill, 0))
    -- An entry that somebody made by hand; `money check` tells of it.
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM outlive.book(promise.tenant_id, promise.month, -coalesce(promise.amount_usd, 0), coalesce(due.bill, 0));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ai_jobs_settle AFTER UPDATE ON outlive.ai_jobs FOR EACH ROW
    WHEN (NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION outlive.settle_ended_job();

-- ---------------------------------------------------------------- how a job is seen

-- Beside jobs_seen, which gateways of before read with all its columns.
-- A worker that has not been seen for a minute is gone: it says so every 15 s.
CREATE VIEW outlive.jobs_shown AS
SELECT j.id, j.tenant_id, j.user_id, j.kind, j.status::text, j.priority, j.provider, j.model, j.attempts,
    j.max_attempts, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.retry_of, j.created_at, j.run_at,
    j.started_at, j.finished_at, j.error_code, j.error_class, coalesce(l.last_seq, j.last_seq) AS last_event_id,
    c.metadata, c.result, c.error_message,
    CASE j.status
        WHEN 'scheduled' THEN 'run_at'
        WHEN 'queued' THEN coalesce(
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
    CASE WHEN r.job_id IS NOT NULL THEN r.charged_usd
        WHEN j.reserved_usd = 0 AND outlive.has_ended(j.status) THEN 0 END AS charged_usd
FROM outlive.ai_jobs j
LEFT JOIN outlive.job_leases l ON l.job_id = j.id
LEFT JOIN outlive.job_contents c ON c.job_id = j.id
LEFT JOIN outlive.quota_reservations r ON r.job_id = j.id;
