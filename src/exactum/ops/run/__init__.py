"""``exactum run``: keeps a script running, with restarts, a standby and a view of its queries."""
