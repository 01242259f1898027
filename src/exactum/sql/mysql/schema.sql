-- The tables that exactum keeps in MySQL and MariaDB. It creates them when they are first needed,
-- unless they are there: an administrator may create them instead, in the database of the target
-- table (the first) and in that of the decision log's URL (the last two).
--
-- The user needs CREATE on the database where the tables are not there yet. With create_table=True
-- the target itself is made of the frame's columns (create_table in sql/dialect.py).

-- name: create_ledger
-- The ledger: the row of a transaction is written in that very transaction, so it is there if and
-- only if the rows of the epoch are.
-- needs: CREATE on the database
CREATE TABLE IF NOT EXISTS {table} (
    scope varchar(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    batch_id bigint NOT NULL,
    digest varchar(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    attempt int NOT NULL,
    row_count bigint NOT NULL,
    committed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (scope, batch_id)
) ENGINE=InnoDB

-- name: create_files
-- The records of a decision log, each under a name. One row is the commit point of an epoch.
-- needs: CREATE on the database
CREATE TABLE IF NOT EXISTS {table} (
    query_id varchar(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name varchar(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    content longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (query_id, name)
) ENGINE=InnoDB

-- name: create_logs
-- How often each query's records were changed; its rows are the locks of the decision log.
-- needs: CREATE on the database
CREATE TABLE IF NOT EXISTS {table} (
    query_id varchar(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    changes bigint NOT NULL,
    PRIMARY KEY (query_id)
) ENGINE=InnoDB
