What is reserved and charged. A job's end settles it by itself: the trigger of migration 0003.

-- name: open_account
-- The copy of the ledger that a creation can lock, made where the period has none yet. $1 tenant_id, $2 period
INSERT INTO outlive.quota_accounts (tenant_id, period) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: reserve
-- A row comes back where the quota allows it. $1 tenant_id, $2 period, $3 amount, $4 quota
UPDATE outlive.quota_accounts SET reserved_usd = reserved_usd + $3
WHERE tenant_id = $1 AND period = $2 AND reserved_usd + charged_usd + $3 <= $4 RETURNING period

-- name: close_books
-- Nobody writes to the tenant's books until we have committed, but whoever holds its row already. One tenant at a time,
-- or two who close several would deadlock. $1 tenant_id
SELECT pg_advisory_xact_lock(outlive.books_lock($1))

-- name: hold_tenant
-- Behind close_books: whoever was creating under a quota has committed, and the next one waits. $1 tenant_id
SELECT FROM outlive.tenants WHERE id = $1 FOR NO KEY UPDATE

-- name: take_time
-- For whoever reads the whole ledger, which may be long and keeps nobody waiting.
SET LOCAL statement_timeout = 0

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
-- Jobs whose reservation does not agree with them, with the ledger or with its rules. Entries that adjust stand beside
-- what a job was promised. $1 how many at most
WITH ledger AS (
    SELECT job_id, sum(reserved_usd) AS reserved_usd, sum(charged_usd) AS charged_usd,
        sum(reserved_usd) FILTER (WHERE entry = 'reserve') AS promised_usd,
        min(entry) FILTER (WHERE entry <> 'reserve') AS settled, count(*) AS entries,
        min(tenant_id::text) AS tenant_id, max(tenant_id::text) AS other_tenant_id, min(month) AS month,
        max(month) AS other_month
    FROM outlive.quota_ledger WHERE entry <> 'adjust' GROUP BY job_id
)
SELECT job_id, j.status::text, r.state, r.amount_usd, r.charged_usd, l.reserved_usd AS ledger_reserved_usd,
    l.charged_usd AS ledger_charged_usd
FROM outlive.quota_reservations r
FULL JOIN ledger l USING (job_id)
FULL JOIN (SELECT id AS job_id, status, tenant_id, reserved_usd, finished_at FROM outlive.ai_jobs) AS j USING (job_id)
WHERE CASE
    WHEN r.state IS NULL THEN l.entries IS NOT NULL OR j.reserved_usd > 0
    ELSE j.status IS NULL OR (r.state = 'open') <> (j.finished_at IS NULL)
        OR r.tenant_id <> j.tenant_id OR r.amount_usd IS DISTINCT FROM j.reserved_usd
        OR l.promised_usd IS DISTINCT FROM r.amount_usd
        OR coalesce(l.reserved_usd, 0) <> CASE r.state WHEN 'open' THEN coalesce(r.amount_usd, 0) ELSE 0 END
        OR coalesce(l.charged_usd, 0) <> coalesce(r.charged_usd, 0)
        OR (r.state = 'released' AND r.charged_usd <> 0)
        OR l.settled <> CASE r.state WHEN 'charged' THEN 'charge' WHEN 'released' THEN 'release' ELSE '' END
        OR l.tenant_id <> r.tenant_id::text OR l.other_tenant_id <> r.tenant_id::text
        OR l.month <> r.month OR l.other_month <> r.month
    END
ORDER BY job_id LIMIT $1

-- name: forget_accounts
-- Under both locks. $1 tenant_id
DELETE FROM outlive.quota_accounts WHERE tenant_id = $1

-- name: rebuild_accounts
-- Under both locks, when there are none. $1 tenant_id
INSERT INTO outlive.quota_accounts (tenant_id, period, reserved_usd, charged_usd)
SELECT l.tenant_id, CASE t.quota_period WHEN 'total' THEN 'total' ELSE l.month END, sum(l.reserved_usd),
    sum(l.charged_usd)
FROM outlive.quota_ledger l JOIN outlive.tenants t ON t.id = l.tenant_id
WHERE t.quota_usd IS NOT NULL AND t.id = $1 GROUP BY 1, 2

-- name: money_totals
-- What there is, for whoever checks it.
SELECT (SELECT count(*) FROM outlive.quota_ledger) AS entries,
    (SELECT count(*) FROM outlive.quota_accounts) AS accounts,
    (SELECT count(*) FROM outlive.quota_reservations WHERE state = 'open') AS open_reservations
