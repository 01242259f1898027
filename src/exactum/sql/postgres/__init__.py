"""PostgreSQL: its sink and its dialect, by psycopg 3."""
