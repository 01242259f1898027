"""The page: every query of a script or of some checkpoints, in a browser. Read-only.

    monitor.job_sources -> JobState -> pages -> routes

It is drawn from what is on disk beside each checkpoint, and from what a supervisor hears; no
trouble of it is a query's.
"""
