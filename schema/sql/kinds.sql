What workers can do, told to the gateways; and who is there.

-- name: register_kind
-- An older version never replaces a newer one. $1 kind, $2 version, $3 input_schema, $4 repeat, $5 time_limit_s,
-- $6 calls_provider, $7 default_provider, $8 default_model, $9 choices
INSERT INTO outlive.job_kinds AS known (kind, version, input_schema, repeat, time_limit_s, calls_provider,
    default_provider, default_model, choices)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (kind) DO UPDATE SET version = excluded.version, input_schema = excluded.input_schema,
    repeat = excluded.repeat, time_limit_s = excluded.time_limit_s, calls_provider = excluded.calls_provider,
    default_provider = excluded.default_provider, default_model = excluded.default_model,
    choices = excluded.choices, registered_at = now()
WHERE known.version <= excluded.version

-- name: list_kinds
-- All of them.
SELECT kind, version, input_schema, repeat, time_limit_s, calls_provider, default_provider, default_model, choices
FROM outlive.job_kinds ORDER BY kind

-- name: see_worker
-- $1 name, $2 kinds
INSERT INTO outlive.workers (name, kinds) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET kinds = excluded.kinds, seen_at = now()

-- name: forget_workers
-- This one, and all that have not been seen for a day. $1 name
DELETE FROM outlive.workers WHERE name = $1 OR seen_at < now() - interval '1 day'
