Migrations and the version of the schema.

-- name: lock_migrations
-- Wait for every other migrator. $1 number of the lock
SELECT pg_advisory_lock($1)

-- name: unlock_migrations
-- $1 number of the lock
SELECT pg_advisory_unlock($1)

-- name: create_schema
-- Under the migrators' lock: IF NOT EXISTS alone fails when two meet.
CREATE SCHEMA IF NOT EXISTS outlive

-- name: create_migrations
-- The one table that no migration makes.
CREATE TABLE IF NOT EXISTS outlive.migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    sha256     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: list_migrations
-- What was applied.
SELECT number, sha256 FROM outlive.migrations

-- name: record_migration
-- $1 number, $2 name, $3 sha256 of its text
INSERT INTO outlive.migrations (number, name, sha256) VALUES ($1, $2, $3)

-- name: has_migrations
-- Whether this database knows of us at all.
SELECT to_regclass('outlive.migrations') IS NOT NULL

-- name: schema_version
-- The newest migration.
SELECT coalesce(max(number), 0) FROM outlive.migrations

-- name: make_event_partition
-- $1 name, $2 and $3 the first id in it and the first after it; false where it is there already.
SELECT outlive.make_event_partition($1, $2, $3) AS made

-- name: missing_partitions
-- Those of these names that are not there. $1 names
SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass('outlive.' || name) IS NULL ORDER BY name

-- name: server_facts
-- What `check` wants to know of the server.
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS version_text,
    current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off' AS durable,
    clock_timestamp() AS now, pg_notification_queue_usage() AS queue_usage
