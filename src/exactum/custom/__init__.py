"""Targets of the user's own: two-phase commit, and write-ahead for targets without transactions."""
