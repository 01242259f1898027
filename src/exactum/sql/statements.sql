-- What PostgreSQL and MySQL are sent alike: by the ledger and the decision log.
--
-- Every statement has a name, what it is for, and the privileges that it needs. {ledger} stands
-- for the quoted name of a table, with its schema; %s for an argument. What one server alone is
-- sent is in postgres/statements.sql and mysql/statements.sql, and the tables in schema.sql there.

-- name: highest_batch
-- The newest batch that a sink has in its target. Epochs follow one another, so every older batch
-- is there, too.
-- needs: SELECT on the ledger
SELECT max(batch_id) FROM {ledger} WHERE scope = %s

-- name: forget_batches
-- 'exactum accept', where a target is ahead of the decision log: these batches may be written again.
-- needs: SELECT and DELETE on the ledger
DELETE FROM {ledger} WHERE scope = %s AND batch_id >= %s

-- name: find_digest
-- Which files a committed batch was made of.
-- needs: SELECT on the ledger
SELECT digest FROM {ledger} WHERE scope = %s AND batch_id = %s

-- name: list_old_batches
-- Ledger rows that later ones speak for.
-- needs: SELECT on the ledger
SELECT batch_id FROM {ledger} WHERE scope = %s AND batch_id < %s

-- name: forget_batch
-- Remove one of them, by its whole key: a range would lock the next row, too, which may be another
-- query's.
-- needs: SELECT and DELETE on the ledger
DELETE FROM {ledger} WHERE scope = %s AND batch_id = %s

-- name: list_files
-- The names of a query's decisions, of its floors, and of what says which log it is.
-- needs: SELECT on the decisions
SELECT name FROM {files} WHERE query_id = %s

-- name: read_file
-- What stands under a name: the record of a decision, for one.
-- needs: SELECT on the decisions
SELECT content FROM {files} WHERE query_id = %s AND name = %s

-- name: forget_file
-- Remove the decision of a batch that is long completed.
-- needs: SELECT and DELETE on the decisions
DELETE FROM {files} WHERE query_id = %s AND name = %s

-- name: count_changes
-- On each new connection: whether all changes that were acknowledged are there.
-- needs: SELECT on the logs
SELECT changes FROM {logs} WHERE query_id = %s

-- name: lock_changes
-- The same, and everybody else who changes the query's decisions waits for us.
-- needs: SELECT and UPDATE on the logs
SELECT changes FROM {logs} WHERE query_id = %s FOR UPDATE

-- name: count_change
-- One more.
-- needs: SELECT and UPDATE on the logs
UPDATE {logs} SET changes = changes + 1 WHERE query_id = %s

-- name: try_creating
-- 'exactum doctor': whether tables can be created there. Two columns of one name are refused after
-- the right was asked, so that no table is ever made.
-- needs: CREATE on the schema (MySQL: the database)
CREATE TABLE {table} (a int, a int)

-- name: try_creating_temporary
-- Whether temporary tables can be created, in the same way.
-- needs: TEMPORARY (MySQL: CREATE TEMPORARY TABLES) on the database
CREATE TEMPORARY TABLE {table} (a int, a int)
