What workers can do, told to the gateways; and who is there.

-- name: register_kind
-- An older version never replaces a newer one. $1 kind, $2 version, $3 input_schema, $4 repeat, $5 time_limit_s,
-- $6 calls_provider, $7 default_provider, $8 default_model, $9 choices, $10 price_usd, $11 max_cost_usd, $12 calls,
-- $13 prices
INSERT INTO outlive.job_kinds AS known (kind, version, input_schema, repeat, time_limit_s, calls_provider,
    default_provider, default_model, choices, price_usd, max_cost_usd, calls, prices)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (kind) DO UPDATE SET version = excluded.version, input_schema = excluded.input_schema,
    repeat = excluded.repeat, time_limit_s = excluded.time_limit_s, calls_provider = excluded.calls_provider,
    default_provider = excluded.default_provider, default_model = excluded.default_model,
    choices = excluded.choices, price_usd = excluded.price_usd, max_cost_usd = excluded.max_cost_usd,
    calls = excluded.calls, prices = excluded.prices, registered_at = now()
WHERE known.version <= excluded.version

-- name: list_kinds
-- All of them.
SELECT kind, version, input_schema, repeat, time_limit_s, calls_provider, default_provider, default_model, choices,
    price_usd, max_cost_usd, calls, prices
FROM outlive.job_kinds ORDER BY kind

-- name: see_worker
-- $1 name, $2 kinds, $3 providers
INSERT INTO outlive.workers (name, kinds, providers) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET kinds = excluded.kinds, providers = excluded.providers, seen_at = now()

-- name: forget_workers
-- This one, and all that have not been seen for a day. $1 name
DELETE FROM outlive.workers WHERE name = $1 OR seen_at < now() - interval '1 day'
