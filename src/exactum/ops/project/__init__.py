"""``exactum init``: a project with one query that works, as a start for somebody's own."""
