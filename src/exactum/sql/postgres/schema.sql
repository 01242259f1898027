-- The tables that exactum keeps in PostgreSQL. It creates them when they are first needed, unless
-- they are there: an administrator may create them instead, in the schema of the target table (the
-- first) and in the first schema of the search_path (the last two).
--
-- The user needs USAGE on the schema, and CREATE on it where the tables are not there yet. With
-- create_table=True the target itself is made of the frame's columns (create_table in sql/dialect.py).

-- name: create_ledger
-- The ledger: the row of a transaction is written in that very transaction, so it is there if and
-- only if the rows of the epoch are.
-- needs: CREATE on the schema
CREATE TABLE IF NOT EXISTS {table} (
    scope text COLLATE "C" NOT NULL, batch_id bigint NOT NULL, digest text COLLATE "C" NOT NULL,
    attempt integer NOT NULL, row_count bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, batch_id)
)

-- name: create_files
-- The records of a decision log, each under a name. One row is the commit point of an epoch.
-- needs: CREATE on the schema
CREATE TABLE IF NOT EXISTS {table} (
    query_id text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, content text NOT NULL,
    PRIMARY KEY (query_id, name)
)

-- name: create_logs
-- How often each query's records were changed; its rows are the locks of the decision log.
-- needs: CREATE on the schema
CREATE TABLE IF NOT EXISTS {table} (
    query_id text COLLATE "C" NOT NULL PRIMARY KEY, changes bigint NOT NULL
)
