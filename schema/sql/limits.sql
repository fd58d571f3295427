How much may run at once: of all, of a provider, of a tenant.

-- name: set_limit
-- No row comes back where an operator has set another and this is not one. $1 scope, $2 most, $3 whether an operator says so
INSERT INTO outlive.limits AS known (scope, most, by_operator) VALUES ($1, $2, $3)
ON CONFLICT (scope) DO UPDATE SET most = excluded.most, by_operator = excluded.by_operator
WHERE (known.most, known.by_operator) <> (excluded.most, excluded.by_operator)
    AND (excluded.by_operator OR NOT known.by_operator)
RETURNING scope

-- name: adopt_runs
-- What runs already counts. $1 scope
SELECT outlive.adopt_runs($1)

-- name: fit_permits
-- As many as the limit says, and no more than that free. $1 scope
SELECT outlive.fit_permits($1)

-- name: remove_limit
-- Its permits go with it; a row comes back where there was one. $1 scope
DELETE FROM outlive.limits WHERE scope = $1 RETURNING scope

-- name: lock_permits
-- In the order in which ends take them: a deletion would take them as they lie. $1 scope
SELECT FROM outlive.permits WHERE scope = $1 ORDER BY slot FOR UPDATE

-- name: lock_limits
-- No claim is under way then, and none begins.
SELECT pg_advisory_xact_lock(outlive.limits_lock())

-- name: list_limits
-- By scope, with how many permits are held.
SELECT l.scope, l.most, l.by_operator, count(p.holder) AS held
FROM outlive.limits l LEFT JOIN outlive.permits p USING (scope) GROUP BY l.scope ORDER BY l.scope

-- name: surplus_scopes
-- Limits that were lowered under what ran, and where something may have been given back since.
SELECT DISTINCT scope FROM outlive.permits WHERE surplus ORDER BY scope
