-- What PostgreSQL and MySQL are sent alike: by the ledger, the directory and the decision log.
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
-- 'exactum accept', where a target is ahead of the decision log: its batches may be written again.
-- needs: SELECT and DELETE on the ledger
DELETE FROM {ledger} WHERE scope = %s

-- name: find_digest
-- Which transactions a committed batch was made of.
-- needs: SELECT on the ledger
SELECT digest FROM {ledger} WHERE scope = %s AND batch_id = %s AND identity = %s

-- name: list_old_batches
-- Ledger rows that later ones speak for.
-- needs: SELECT on the ledger
SELECT batch_id, identity FROM {ledger} WHERE scope = %s AND batch_id < %s

-- name: forget_batch
-- Remove one of them, by its whole key: a range would lock the next row, too, which may be another
-- query's.
-- needs: SELECT and DELETE on the ledger
DELETE FROM {ledger} WHERE scope = %s AND batch_id = %s AND identity = %s

-- name: read_records
-- What is decided about a batch.
-- needs: SELECT on the decisions
SELECT attempt, record FROM {decisions} WHERE query_id = %s AND batch_id = %s ORDER BY attempt

-- name: find_later_record
-- Whether a later batch is decided: then this one must be, or its record was removed.
-- needs: SELECT on the decisions
SELECT 1 FROM {decisions} WHERE query_id = %s AND batch_id > %s LIMIT 1

-- name: find_last_batch
-- Where the log ends, when it does not have what was decided last.
-- needs: SELECT on the decisions
SELECT max(batch_id) FROM {decisions} WHERE query_id = %s

-- name: read_record
-- The record that stands in a slot, after somebody has tried to write his own.
-- needs: SELECT on the decisions
SELECT record FROM {decisions} WHERE query_id = %s AND batch_id = %s AND attempt = %s

-- name: find_record
-- On each new connection: whether the newest decision that was acknowledged is still there.
-- needs: SELECT on the decisions
SELECT 1 FROM {decisions} WHERE query_id = %s AND batch_id = %s AND attempt = %s

-- name: forget_records
-- Remove the decisions of batches that are long completed.
-- needs: SELECT and DELETE on the decisions
DELETE FROM {decisions} WHERE query_id = %s AND batch_id < %s

-- name: read_floor
-- Below which batch a query's decisions are removed.
-- needs: SELECT on the floors
SELECT floor FROM {floors} WHERE query_id = %s

-- name: read_log_id
-- Which log a query's decisions are.
-- needs: SELECT on the floors
SELECT log_id FROM {floors} WHERE query_id = %s

-- name: lock_floor
-- The same, and everybody else who decides or removes decisions of the query waits for us.
-- needs: SELECT and UPDATE on the floors
SELECT floor FROM {floors} WHERE query_id = %s FOR UPDATE

-- name: raise_floor
-- No slot below is ever free again.
-- needs: SELECT and UPDATE on the floors
UPDATE {floors} SET floor = %s WHERE query_id = %s

-- name: try_creating
-- 'exactum doctor': whether tables can be created there. Two columns of one name are refused after
-- the right was asked, so that no table is ever made.
-- needs: CREATE on the schema (MySQL: the database)
CREATE TABLE {table} (a int, a int)

-- name: try_creating_temporary
-- Whether temporary tables can be created, in the same way.
-- needs: TEMPORARY (MySQL: CREATE TEMPORARY TABLES) on the database
CREATE TEMPORARY TABLE {table} (a int, a int)
