-- What operators' commands ask PostgreSQL alone. They read and change nothing.

-- name: inspect_prepared
-- Everybody's prepared transactions in this database, oldest first: name, since when in ms, owner.
-- needs: nothing
SELECT gid, (extract(epoch FROM prepared) * 1000)::bigint, owner::text
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared

-- name: list_directories
-- Where exactum keeps tables in this database.
-- needs: nothing
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %s AND c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1
