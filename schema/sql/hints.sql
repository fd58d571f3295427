Hints: they say "look" and carry nothing that is not in a table.

-- name: notify
-- $1 channel, $2 payload
SELECT pg_notify($1, $2)

-- name: default_isolation
-- Of the role, or of the database, where it is not ours to choose.
SHOW default_transaction_isolation

-- name: is_standby
-- LISTEN cannot run in recovery, and a standby's rows lag behind the hints.
SELECT pg_is_in_recovery()
