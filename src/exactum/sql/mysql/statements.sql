-- What MySQL and MariaDB alone are sent, as far as it does not depend on a table's columns. The rest
-- is made in sql/dialect.py (CREATE TABLE), sql/mysql/dialect.py (LOAD DATA, INSERT ... SELECT) and
-- sql/mysql/rows.py (INSERT).
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
-- tx_isolation. {idle_timeout}: a stopped driver must not hold locks for ever. It is MariaDB's
-- idle_transaction_timeout; MySQL can only end idle sessions as a whole (wait_timeout), and the driver
-- then connects again.
-- needs: nothing
SET SESSION
    sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION',
    time_zone = '+00:00', {isolation} = 'READ-COMMITTED',
    innodb_lock_wait_timeout = %s, lock_wait_timeout = %s,
    sql_notes = 0, max_error_count = 64, sql_safe_updates = 0, max_sort_length = 65536,
    sort_buffer_size = 16777216,
    unique_checks = 1, foreign_key_checks = 1,
    {idle_timeout} = %s

-- name: read_settings
-- Whether the server keeps what it commits, whether it takes our isolation, and how long a statement may
-- be.
-- needs: nothing
SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'innodb_flush_log_at_trx_commit',
    'sync_binlog', 'wsrep_on', 'max_allowed_packet')

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
-- The target: what it is. lower_case_table_names decides how names compare; the
-- server applies it to its own catalog.
-- needs: any privilege on the table
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s

-- name: list_columns
-- Its columns, by the names that sql/mysql/types.py knows them by.
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

-- ==== the temporary table ====

-- name: drop_temporary_table
-- What an earlier load of the session has left: a temporary table outlives its transaction here.
-- needs: CREATE TEMPORARY TABLES on the database
DROP TEMPORARY TABLE IF EXISTS `exactum_loaded`

-- ==== ledger and decision log ====

-- name: enter_ledger
-- The row that says "committed", unless it is there. Waits for whoever is just writing the same. Not
-- INSERT IGNORE, which would also cut a text that is too long.
-- needs: SELECT, INSERT and UPDATE on the ledger
INSERT INTO {ledger} (`scope`, `batch_id`, `digest`, `attempt`, `row_count`)
VALUES (%s, %s, %s, %s, %s) ON DUPLICATE KEY UPDATE `scope` = `scope`

-- name: enter_file
-- A decision, unless the name is taken: the commit point of an epoch.
-- needs: SELECT, INSERT and UPDATE on the decisions
INSERT INTO {files} (`query_id`, `name`, `content`)
VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE `query_id` = `query_id`

-- name: enter_log
-- A query's row among the logs, unless it is there.
-- needs: SELECT, INSERT and UPDATE on the logs
INSERT INTO {logs} (`query_id`, `changes`) VALUES (%s, 0)
ON DUPLICATE KEY UPDATE `query_id` = `query_id`

-- ==== what exactum doctor looks at ====

-- name: examine_server
-- What the server is, and its clock in microseconds since 1970.
-- needs: nothing
SELECT VERSION(), CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), @@GLOBAL.local_infile,
    @@GLOBAL.read_only
