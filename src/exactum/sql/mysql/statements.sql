-- What MySQL and MariaDB alone are sent, as far as it does not depend on a table's columns. The rest
-- is made in catalog.py (CREATE TABLE), loader.py (LOAD DATA, INSERT) and move.py (INSERT ... SELECT).
--
-- Every statement has a name, what it is for, and the privileges that it needs. {ledger} stands
-- for the quoted name of a table, with its database; {isolation} and the like for a word; %s for an
-- argument, after IN for a list of them.

-- ==== sessions ====

-- name: set_up_session
-- What the guarantee rests on, whatever the server's own settings are. sql_mode: nothing is cut or
-- replaced in silence, 0 is not taken for "the next number", and text is escaped by backslashes.
-- Notes are no losses; without them a count of warnings above 0 is one. max_sort_length: keys that
-- differ after so many bytes would be one key; the buffer has to have room for 15 of them, of each
-- column that is sorted by. {isolation} is transaction_isolation, or MariaDB's
-- tx_isolation.
-- needs: nothing
SET SESSION
    sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION',
    time_zone = '+00:00', {isolation} = 'READ-COMMITTED',
    innodb_lock_wait_timeout = %s, lock_wait_timeout = %s,
    sql_notes = 0, max_error_count = 64, sql_safe_updates = 0, max_sort_length = 65536,
    sort_buffer_size = 16777216,
    unique_checks = 1, foreign_key_checks = 1

-- name: set_up_driver
-- Follows set_up_session in the driver's sessions: a stopped driver must not hold locks for ever.
-- {idle_timeout} is MariaDB's idle_transaction_timeout; MySQL can only end idle sessions as a whole
-- (wait_timeout), and the driver then connects again.
-- needs: nothing
, {idle_timeout} = %s

-- name: read_settings
-- Whether the server keeps what it commits, and whether it takes our isolation.
-- needs: nothing
SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'innodb_flush_log_at_trx_commit',
    'sync_binlog', 'wsrep_on', 'group_replication_single_primary_mode')

-- name: read_load_settings
-- Whether rows can go by LOAD DATA LOCAL INFILE, and how long a statement may be.
-- needs: nothing
SELECT @@GLOBAL.local_infile, @@SESSION.max_allowed_packet

-- name: read_warnings
-- Why LOAD DATA or INSERT has not taken every row as it was.
-- needs: nothing
SHOW WARNINGS LIMIT 3

-- name: read_replication
-- Whether a COMMIT waits for a standby, and how many are connected (MariaDB).
-- needs: nothing
SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status',
    'Rpl_semi_sync_source_status', 'Slaves_connected')

-- name: read_wait_point
-- Whether it waits before anybody sees what is committed.
-- needs: nothing
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_master_wait_point',
    'rpl_semi_sync_source_wait_point')

-- name: count_binlog_readers
-- The standbys of MySQL, which has no count of them.
-- needs: nothing (who lacks PROCESS on the server finds none)
SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE LEFT(COMMAND, 11) = 'Binlog Dump'

-- ==== the catalog ====

-- name: find_table
-- The target, or a staging table: what it is. lower_case_table_names decides how names compare; the
-- server applies it to its own catalog.
-- needs: any privilege on the table
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s

-- name: list_columns
-- Its columns, by the names that types.py knows them by.
-- needs: any privilege on the columns
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,
    GENERATION_EXPRESSION, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,
    DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION

-- name: list_checks
-- MariaDB's JSON is text with a CHECK, under the column's name.
-- needs: any privilege on the table
SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s

-- name: list_unique_keys
-- Every unique key, also those over the beginning of a column: an upsert hits these, too.
-- needs: any privilege on the table
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX

-- name: is_there
-- Whether a table is there: CREATE TABLE IF NOT EXISTS asks for the right to create all the same.
-- needs: any privilege on the table
SELECT 1 FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s

-- name: list_tables
-- The staging tables of a sink, by their common prefix.
-- needs: any privilege on the tables
SELECT TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND LEFT(TABLE_NAME, %s) = %s

-- name: try_characters
-- Which characters a column's character set can hold: those that come back as they were.
-- needs: nothing
SELECT CAST(CONVERT(%s USING {charset}) AS BINARY),
    CONVERT(CONVERT(%s USING {charset}) USING utf8mb4)

-- ==== ledger, directory and decision log ====

-- name: enter_ledger
-- The row that says "committed", unless it is there. Waits for whoever is just writing the same. Not
-- INSERT IGNORE, which would also cut a text that is too long.
-- needs: SELECT, INSERT and UPDATE on the ledger
INSERT INTO {ledger} (`scope`, `batch_id`, `identity`, `digest`, `attempt`, `row_count`)
VALUES (%s, %s, %s, %s, %s, %s) ON DUPLICATE KEY UPDATE `scope` = `scope`

-- name: enter_part
-- What a task has staged, in the transaction of its rows.
-- needs: INSERT on the directory
INSERT INTO {directory} (`scope`, `identity`, `incarnation`, `batch_id`, `attempt`, `staging`,
    `part`, `row_count`)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)

-- name: enter_record
-- A decision, unless the slot is taken: the commit point of an epoch.
-- needs: SELECT, INSERT and UPDATE on the decisions
INSERT INTO {decisions} (`query_id`, `batch_id`, `attempt`, `record`)
VALUES (%s, %s, %s, %s) ON DUPLICATE KEY UPDATE `query_id` = `query_id`

-- name: enter_floor
-- A query's row among the floors, unless it is there.
-- needs: SELECT, INSERT and UPDATE on the floors
INSERT INTO {floors} (`query_id`, `floor`) VALUES (%s, %s)
ON DUPLICATE KEY UPDATE `query_id` = `query_id`

-- name: find_part
-- Whether anybody has a part in a staging table. Asked by another session, while one has locked it.
-- needs: SELECT on the directory
SELECT 1 FROM {directory} WHERE staging = %s LIMIT 1

-- ==== staging ====

-- name: count_parts
-- How many rows of each part are staged.
-- needs: SELECT on the staging table
SELECT `exactum_part`, COUNT(*) FROM {staging} WHERE `exactum_part` IN %s GROUP BY `exactum_part`

-- name: find_first_rows
-- In which order the parts of an epoch are moved into the target.
-- needs: SELECT on the staging table
SELECT `exactum_part`, MIN(`exactum_row`) FROM {staging}
WHERE `exactum_part` IN %s GROUP BY `exactum_part`

-- name: count_some
-- Whether these parts have more rows than are deleted one by one. By the key, as in delete_parts.
-- needs: SELECT on the staging table
SELECT COUNT(*) FROM (
    SELECT 1 FROM {staging} AS staged FORCE INDEX (PRIMARY) WHERE `exactum_part` IN %s LIMIT %s
) AS some_rows

-- name: delete_parts
-- Remove parts that are in the target, or aborted. By the key: a scan of the table would wait for
-- the rows of a task that is still writing, or has stopped.
-- needs: SELECT and DELETE on the staging table
DELETE staged FROM {staging} AS staged FORCE INDEX (PRIMARY) WHERE `exactum_part` IN %s

-- name: find_staged_row
-- At start: whether a crash between COMMIT and TRUNCATE has left anything.
-- needs: SELECT on the staging table
SELECT 1 FROM {staging} LIMIT 1

-- name: lock_staging
-- Before TRUNCATE or DROP: then no transaction that has written to it is unfinished.
-- needs: LOCK TABLES and SELECT on the staging table; without them rows are deleted
LOCK TABLES {staging} WRITE

-- name: unlock_staging
-- After TRUNCATE, or when the table may not be emptied.
-- needs: nothing
UNLOCK TABLES

-- name: truncate_staging
-- After the COMMIT of an epoch of many rows, when no part of anybody is left in it.
-- needs: DROP on the staging table; without it rows are deleted
TRUNCATE TABLE {staging}

-- name: drop_staging
-- It goes at the start of a query whose columns have changed.
-- needs: DROP on the staging table; without it the table stays
DROP TABLE {staging}

-- name: read_lock_timeouts
-- What set_lock_timeouts is to restore.
-- needs: nothing
SELECT @@SESSION.lock_wait_timeout, @@SESSION.innodb_lock_wait_timeout

-- name: set_lock_timeouts
-- Before lock_staging, which is not to wait, and after it.
-- needs: nothing
SET SESSION lock_wait_timeout = %s, innodb_lock_wait_timeout = %s

-- name: read_idle_timeout
-- What set_idle_timeout is to restore.
-- needs: nothing
SELECT @@SESSION.wait_timeout

-- name: set_idle_timeout
-- A driver that stops while it has locked a staging table loses the lock; and afterwards as before.
-- Also of a task that has prepared and stops before it has ended its connection.
-- needs: nothing
SET SESSION wait_timeout = %s

-- name: read_idle_timeouts
-- The same of MariaDB, where a session that holds LOCK TABLES with autocommit off counts as one in
-- a transaction.
-- needs: nothing
SELECT @@SESSION.wait_timeout, @@SESSION.idle_transaction_timeout

-- name: set_idle_timeouts
-- The same of MariaDB.
-- needs: nothing
SET SESSION wait_timeout = %s, idle_transaction_timeout = %s

-- ==== prepared transactions (mechanism="prepared") ====
-- An xid is (gtrid, bqual, format id). Ours have an empty bqual and the format id 0x45584143, "EXAC".

-- name: read_cluster
-- A Galera cluster has no XA transactions.
-- needs: nothing
SHOW GLOBAL VARIABLES LIKE 'wsrep_on'

-- name: current_user
-- Whom to grant XA_RECOVER_ADMIN.
-- needs: nothing
SELECT CURRENT_USER()

-- name: begin_xa
-- Before a task's rows.
-- needs: nothing
XA START %s,'',%s

-- name: end_xa
-- After a task's rows and its ledger row.
-- needs: nothing
XA END %s,'',%s

-- name: prepare_xa
-- They become durable, and wait for the decision.
-- needs: nothing
XA PREPARE %s,'',%s

-- name: commit_xa
-- After the decision, by the driver.
-- needs: XA_RECOVER_ADMIN on the server, if it is MySQL
XA COMMIT %s,'',%s

-- name: roll_back_xa
-- What nobody decided.
-- needs: XA_RECOVER_ADMIN on the server, if it is MySQL
XA ROLLBACK %s,'',%s

-- name: list_xa
-- The transactions that wait on the server.
-- needs: XA_RECOVER_ADMIN on the server
XA RECOVER CONVERT XID

-- name: list_xa_of_mariadb
-- The same of MariaDB.
-- needs: nothing
XA RECOVER FORMAT='SQL'

-- ==== what exactum doctor looks at ====

-- name: examine_server
-- What the server is, and its clock in microseconds since 1970.
-- needs: nothing
SELECT VERSION(), CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), @@GLOBAL.local_infile,
    @@GLOBAL.max_allowed_packet, @@GLOBAL.sql_mode, @@GLOBAL.read_only, CURRENT_USER()

-- name: try_creating
-- Whether tables can be created beside the target: two columns of one name are refused after the
-- right was looked at, so that no table is ever made.
-- needs: CREATE on the database
CREATE TABLE {table} (a int, a int) ENGINE=InnoDB
