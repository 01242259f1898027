-- What PostgreSQL alone is sent, as far as it does not depend on a table's columns. The rest is
-- made in sql/dialect.py (CREATE TABLE) and sql/postgres/dialect.py (COPY, INSERT ... SELECT).
--
-- Every statement has a name, what it is for, and the privileges that it needs. {ledger} stands
-- for the quoted name of a table, with its schema; %s for an argument.

-- ==== sessions ====

-- name: set_up_session
-- What the guarantee rests on, whatever the role's or the database's own settings are. In
-- synchronous_commit, "local" would not wait for a synchronous standby. A COMMIT that a standby may
-- lack is told by a warning. Without array_nulls a null in an array would be the text NULL. True
-- comes first where the server forgets commits in a power cut, and no standby has to have them. A
-- driver's host that is gone in the middle of a COPY is found by keepalives alone: while the server waits
-- for its rows no timeout counts.
-- needs: nothing
SELECT current_setting('fsync', true) = 'off'
        AND current_setting('synchronous_standby_names', true) = '',
    set_config('lock_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('tcp_keepalives_idle', '20', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('statement_timeout', '0', false), set_config('TimeZone', 'UTC', false),
    set_config('DateStyle', 'ISO, YMD', false), set_config('client_encoding', 'UTF8', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('default_transaction_read_only', 'off', false),
    set_config('client_min_messages', 'warning', false), set_config('array_nulls', 'on', false),
    set_config('synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)

-- name: end_older
-- What an older run of this query has open for the same sink, where it waits for rows in the middle of a
-- COPY: its driver is frozen, and no timeout of the server ends that. Not a COMMIT, which may wait
-- for a standby.
-- needs: nothing (the sessions are the user's own)
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND state = 'active'
    AND wait_event = 'ClientRead' AND starts_with(application_name, %s)
    AND application_name COLLATE "C" < %s

-- name: count_lagging_standbys
-- Standbys for which no COMMIT waits, so that a failover to them loses decisions. A subscriber to
-- logical changes is no standby.
-- needs: nothing (who may not monitor sees the senders, not how they go)
SELECT count(*) FROM pg_stat_replication sender
WHERE current_setting('synchronous_standby_names') = '' AND NOT EXISTS (
    SELECT 1 FROM pg_replication_slots slot
    WHERE slot.active_pid = sender.pid AND slot.slot_type = 'logical')

-- ==== the catalog ====

-- name: find_table
-- The target: what it is; a partition of it, at any depth, that is UNLOGGED or
-- lies on another server; a rule that has its rows go elsewhere; whether policies hide rows from
-- this user.
-- needs: USAGE on its schema
SELECT c.oid::bigint, n.nspname, c.relkind::text, c.relpersistence::text,
    (SELECT min(l.oid::regclass::text)
        FROM pg_partition_tree(CASE WHEN c.relkind = 'p' THEN c.oid END) p
            JOIN pg_class l ON l.oid = p.relid
        WHERE l.relkind NOT IN ('r', 'p') OR l.relpersistence <> 'p'),
    (SELECT min(r.rulename::text) FROM pg_rewrite r
        WHERE r.ev_class = c.oid AND r.ev_type = '3' AND r.is_instead AND r.ev_enabled <> 'D'),
    row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)

-- name: list_columns
-- Its columns: name, type, the number of a type of users (another one may get its name), what a
-- domain or an array is made of at last, and whether they may be left out. A domain may be made of
-- another one, and so may the elements of an array.
-- needs: nothing
WITH RECURSIVE domains (domain, base, modifier, filled) AS (
    SELECT oid, typbasetype, typtypmod, typnotnull FROM pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT d.domain, t.typbasetype, t.typtypmod, d.filled OR t.typnotnull
    FROM domains d JOIN pg_type t ON t.oid = d.base WHERE t.typtype = 'd'
), bases AS (
    SELECT d.* FROM domains d JOIN pg_type t ON t.oid = d.base WHERE t.typtype <> 'd'
)
SELECT a.attname, format_type(a.atttypid, a.atttypmod)
        || CASE WHEN a.attcollation <> t.typcollation AND co.collname IS NOT NULL
           THEN ' COLLATE ' || quote_ident(cn.nspname) || '.' || quote_ident(co.collname)
           ELSE '' END,
    CASE WHEN t.oid >= 16384 THEN ' #' || t.oid ELSE '' END,
    b.typname, coalesce(d.modifier, a.atttypmod),
    (SELECT array_agg(l.enumlabel::text ORDER BY l.enumsortorder)
        FROM pg_enum l WHERE l.enumtypid = b.oid),
    f.typname, coalesce(g.modifier, d.modifier, a.atttypmod),
    (SELECT array_agg(l.enumlabel::text ORDER BY l.enumsortorder)
        FROM pg_enum l WHERE l.enumtypid = f.oid),
    a.attnotnull OR coalesce(d.filled, false),
    a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
    a.attgenerated <> '' OR a.attidentity = 'a',
    d.domain IS NOT NULL OR g.domain IS NOT NULL
        OR current_setting('server_encoding') <> 'UTF8'
            AND (a.attcollation <> 0 OR b.typname IN ('json', 'jsonb')),
    coalesce(f.typtype, b.typtype) = 'c' OR coalesce(f.typcategory, '') = 'A'
FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN bases d ON d.domain = t.oid
    JOIN pg_type b ON b.oid = coalesce(d.base, t.oid)
    LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
    LEFT JOIN bases g ON g.domain = e.oid
    LEFT JOIN pg_type f ON f.oid = coalesce(g.base, e.oid)
    LEFT JOIN pg_collation co ON co.oid = a.attcollation
    LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE a.attrelid = %s::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: list_unique_keys
-- Its unique keys that hold for all rows and at once, also of tables that inherit from it, and by which
-- values are equal as they are in the column itself, and as = says in a statement.
-- needs: nothing
SELECT array_agg(a.attname::text)
FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    LEFT JOIN pg_collation ac ON ac.oid = a.attcollation
    LEFT JOIN pg_collation ic ON ic.oid = i.indcollation[(k.place - 1)::int]
    JOIN pg_opclass oc ON oc.oid = i.indclass[(k.place - 1)::int]
    JOIN pg_amop o ON o.amopfamily = oc.opcfamily AND o.amopstrategy = 3
        AND o.amoplefttype = oc.opcintype AND o.amoprighttype = oc.opcintype
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    AND NOT EXISTS (SELECT FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhparent
        WHERE h.inhparent = i.indrelid AND p.relkind = 'r')
GROUP BY i.indexrelid
HAVING bool_and(pg_operator_is_visible(o.amopopr)
    AND (ac.oid IS NOT DISTINCT FROM ic.oid OR ac.collisdeterministic AND ic.collisdeterministic))

-- name: is_there
-- Whether a table is there: CREATE TABLE IF NOT EXISTS asks for the right to create all the same.
-- needs: USAGE on its schema
SELECT 1 WHERE to_regclass(%s) IS NOT NULL

-- ==== ledger and decision log ====

-- name: enter_ledger
-- The row that says "committed", unless it is there. Waits for whoever is just writing the same.
-- needs: INSERT on the ledger
INSERT INTO {ledger} ("scope", "batch_id", "digest", "attempt", "row_count")
VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: enter_file
-- A decision, unless the name is taken: the commit point of an epoch.
-- needs: INSERT on the decisions
INSERT INTO {files} ("query_id", "name", "content") VALUES (%s, %s, %s) ON CONFLICT DO NOTHING

-- name: enter_log
-- A query's row among the logs, unless it is there.
-- needs: INSERT on the logs
INSERT INTO {logs} ("query_id", "changes") VALUES (%s, 0) ON CONFLICT DO NOTHING

-- name: drop_temporary_table
-- What an earlier load of the same transaction has left.
-- needs: nothing
DROP TABLE IF EXISTS pg_temp.exactum_loaded

-- name: lock_definition
-- Before rows go into the target: its columns, keys and rules stay as they are then read, until the
-- transaction ends. Others write rows as ever.
-- needs: INSERT on the target
LOCK TABLE ONLY {target} IN ROW EXCLUSIVE MODE

-- name: check_constraints
-- After the move into the target: what is DEFERRABLE is refused before the decision, too.
-- needs: nothing
SET CONSTRAINTS ALL IMMEDIATE

-- name: save
-- Before something that may be refused while the transaction goes on.
-- needs: nothing
SAVEPOINT exactum_rows

-- name: undo
-- It was refused.
-- needs: nothing
ROLLBACK TO SAVEPOINT exactum_rows

-- name: keep
-- The transaction goes on, with what was not undone.
-- needs: nothing
RELEASE SAVEPOINT exactum_rows

-- ==== what exactum doctor looks at ====

-- name: examine_server
-- What the server is and how it keeps what it commits, who answers, and its clock.
-- needs: nothing
SELECT json_build_object('version', current_setting('server_version'),
        'number', current_setting('server_version_num')::int, 'is_standby', pg_is_in_recovery(),
        'synchronous_standby_names', current_setting('synchronous_standby_names'),
        'senders', (SELECT count(*) FROM pg_stat_replication), 'user', current_user)::text,
    pg_backend_pid(), extract(epoch FROM clock_timestamp())::float8

-- name: examine_table
-- What the user may do with a table.
-- needs: USAGE on its schema
SELECT has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'),
    has_table_privilege(c.oid, 'INSERT') OR has_any_column_privilege(c.oid, 'INSERT'),
    has_table_privilege(c.oid, 'UPDATE') OR has_any_column_privilege(c.oid, 'UPDATE'),
    has_table_privilege(c.oid, 'DELETE')
FROM pg_class c WHERE c.oid = to_regclass(%s)

-- name: bound_look
-- No statement of this transaction takes longer.
-- needs: nothing
SELECT set_config('statement_timeout', %s, true)

-- name: mark_session
-- Whether a setting of the session outlives its transaction: behind some poolers it does not.
-- needs: nothing
SELECT set_config('exactum.doctor', %s, false)

-- name: read_mark
-- The same.
-- needs: nothing
SELECT coalesce(current_setting('exactum.doctor', true), ''), pg_backend_pid()
