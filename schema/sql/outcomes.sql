Every ended job once, in an order that never skips one whose commit is still to come.

-- name: outcomes_of_tenant
-- Statements of their own for one tenant and for all, so that each has its index.
-- $1 xid and $2 job id to go on after, $3 how many, $4 tenant_id
SELECT *, ended_xid::text AS xid FROM outlive.outcomes_seen
WHERE tenant_id = $4 AND (ended_xid, id) > ($1::text::xid8, $2::uuid)
ORDER BY ended_xid, id LIMIT $3

-- name: outcomes_of_all
-- For an operator. $1 xid and $2 job id to go on after, $3 how many
SELECT *, ended_xid::text AS xid FROM outlive.outcomes_seen
WHERE (ended_xid, id) > ($1::text::xid8, $2::uuid)
ORDER BY ended_xid, id LIMIT $3
