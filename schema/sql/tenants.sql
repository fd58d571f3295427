Tenants and their API keys.

-- name: add_tenant
-- No row comes back where the name is taken. $1 id, $2 name, $3 weight, $4 max_queued, $5 quota_usd, $6 quota_period
INSERT INTO outlive.tenants (id, name, weight, max_queued, quota_usd, quota_period) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO NOTHING RETURNING id

-- name: set_tenant
-- $1 id, $2 weight, $3 max_queued, $4 quota_usd, $5 quota_period
UPDATE outlive.tenants SET weight = $2, max_queued = $3, quota_usd = $4, quota_period = $5 WHERE id = $1

-- name: list_tenants
-- By name.
SELECT id, name, created_at, weight, max_queued, quota_usd, quota_period
FROM outlive.tenants ORDER BY name

-- name: find_tenant
-- $1 name
SELECT id, name, created_at, weight, max_queued, quota_usd, quota_period
FROM outlive.tenants WHERE name = $1

-- name: get_tenant
-- $1 id
SELECT id, name, created_at, weight, max_queued, quota_usd, quota_period
FROM outlive.tenants WHERE id = $1

-- name: add_key
-- $1 id, $2 tenant_id, $3 sha256, $4 label, $5 is_operator
INSERT INTO outlive.api_keys (id, tenant_id, sha256, label, is_operator) VALUES ($1, $2, $3, $4, $5)

-- name: list_keys
-- $1 tenant_id
SELECT id, tenant_id, label, is_operator, created_at, revoked_at FROM outlive.api_keys
WHERE tenant_id = $1 ORDER BY created_at

-- name: find_key
-- A key that still opens. $1 sha256
SELECT id, tenant_id, label, is_operator, created_at, revoked_at FROM outlive.api_keys
WHERE sha256 = $1 AND revoked_at IS NULL

-- name: revoked_keys
-- Those of these keys that open no more. $1 ids
SELECT id FROM outlive.api_keys WHERE id = ANY($1) AND revoked_at IS NOT NULL

-- name: revoke_key
-- A row comes back where there is such a key, revoked before or not. $1 id
UPDATE outlive.api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1 RETURNING id
