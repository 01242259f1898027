-- What operators' commands ask MySQL and MariaDB alone. They read and change nothing. Prepared
-- transactions are listed by list_xa and list_xa_of_mariadb, in statements.sql.

-- name: list_directories
-- In which databases exactum keeps tables.
-- needs: SELECT on them
SELECT TABLE_SCHEMA FROM information_schema.TABLES WHERE TABLE_NAME = %s ORDER BY 1
