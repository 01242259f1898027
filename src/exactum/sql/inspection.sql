-- What operators' commands ask PostgreSQL and MySQL alike. They read and change nothing. The form
-- is that of statements.sql.

-- name: inspect_staged
-- What the tasks of a sink have staged, whoever's they are.
-- needs: SELECT on the directory
SELECT identity, incarnation, batch_id, attempt, staging, part, row_count FROM {directory}
WHERE scope = %s ORDER BY batch_id, identity

-- name: inspect_directory
-- What the tasks of any sink have staged beside one target.
-- needs: SELECT on the directory
SELECT scope, identity, incarnation, batch_id, attempt, staging, row_count FROM {directory}
ORDER BY scope, batch_id, identity
