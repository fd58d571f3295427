What is reserved and charged. A job's end settles it by itself: the trigger of migration 0003.

-- name: open_account
-- The copy of the ledger that a creation can lock, made where the period has none yet. $1 tenant_id, $2 period
INSERT INTO outlive.quota_accounts (tenant_id, period) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: reserve
-- A row comes back where the quota allows it. $1 tenant_id, $2 period, $3 amount, $4 quota
UPDATE outlive.quota_accounts SET reserved_usd = reserved_usd + $3
WHERE tenant_id = $1 AND period = $2 AND reserved_usd + charged_usd + $3 <= $4 RETURNING period

-- name: lock_tenants
-- Whoever creates under a quota waits, so that nobody holds an account who will want the ledger. $1 tenant_id or null
SELECT FROM outlive.tenants WHERE $1::uuid IS NULL OR id = $1 ORDER BY id FOR NO KEY UPDATE

-- name: lock_ledger
-- Whoever settles waits before it begins; reading goes on.
LOCK TABLE outlive.quota_ledger IN SHARE ROW EXCLUSIVE MODE

-- name: check_accounts
-- Accounts that are not what their ledger says; null = no such account.
WITH ledger AS (
    SELECT l.tenant_id, CASE t.quota_period WHEN 'total' THEN 'total' ELSE l.month END AS period,
        sum(l.reserved_usd) AS reserved_usd, sum(l.charged_usd) AS charged_usd
    FROM outlive.quota_ledger l JOIN outlive.tenants t ON t.id = l.tenant_id
    WHERE t.quota_usd IS NOT NULL GROUP BY 1, 2
)
SELECT t.name AS tenant, period, a.reserved_usd, a.charged_usd, coalesce(l.reserved_usd, 0) AS ledger_reserved_usd,
    coalesce(l.charged_usd, 0) AS ledger_charged_usd
FROM outlive.quota_accounts a FULL JOIN ledger l USING (tenant_id, period) JOIN outlive.tenants t ON t.id = tenant_id
WHERE (coalesce(a.reserved_usd, -1), coalesce(a.charged_usd, -1))
    <> (coalesce(l.reserved_usd, 0), coalesce(l.charged_usd, 0))
ORDER BY t.name, period

-- name: check_reservations
-- Reservations that do not agree with the ledger or with their job. $1 how many at most
SELECT r.job_id, r.state, r.amount_usd, sums.reserved_usd AS ledger_reserved_usd,
    sums.charged_usd AS ledger_charged_usd, r.charged_usd, j.status::text
FROM outlive.quota_reservations r JOIN outlive.ai_jobs j ON j.id = r.job_id
LEFT JOIN LATERAL (
    SELECT coalesce(sum(l.reserved_usd), 0) AS reserved_usd, coalesce(sum(l.charged_usd), 0) AS charged_usd
    FROM outlive.quota_ledger l WHERE l.job_id = r.job_id
) AS sums ON true
WHERE (r.state = 'open') = outlive.has_ended(j.status)
    OR sums.reserved_usd <> CASE r.state WHEN 'open' THEN coalesce(r.amount_usd, 0) ELSE 0 END
    OR sums.charged_usd <> coalesce(r.charged_usd, 0)
ORDER BY r.job_id LIMIT $1

-- name: forget_accounts
-- Under lock_tenants and lock_ledger. $1 tenant_id or null
DELETE FROM outlive.quota_accounts WHERE $1::uuid IS NULL OR tenant_id = $1

-- name: rebuild_accounts
-- Under lock_tenants and lock_ledger, when there are none. $1 tenant_id or null
INSERT INTO outlive.quota_accounts (tenant_id, period, reserved_usd, charged_usd)
SELECT l.tenant_id, CASE t.quota_period WHEN 'total' THEN 'total' ELSE l.month END, sum(l.reserved_usd),
    sum(l.charged_usd)
FROM outlive.quota_ledger l JOIN outlive.tenants t ON t.id = l.tenant_id
WHERE t.quota_usd IS NOT NULL AND ($1::uuid IS NULL OR t.id = $1) GROUP BY 1, 2

-- name: money_totals
-- What there is, for whoever checks it.
SELECT (SELECT count(*) FROM outlive.quota_ledger) AS entries,
    (SELECT count(*) FROM outlive.quota_accounts) AS accounts,
    (SELECT count(*) FROM outlive.quota_reservations WHERE state = 'open') AS open_reservations
