"""Queries over Spark Connect, on PySpark's public API (docs/connect.md).

Spark runs the function of ``foreachBatch`` in a Python process beside its server. There everything
lives that a classic session has in the driver: coordinator, participants, decision log.

    client: start() --pickled--> server's worker: ServerFunction --first batch--> run opened
            Query   <---- errors as Spark's text, a note in the session's settings for stop() ----
"""
