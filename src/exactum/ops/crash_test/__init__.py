"""Kill and compare: a driver killed at the moments that hurt most, and what comes out.

    killing        the moments, the plan of kills, and who waits for them
    topics         topics of a test: filled, and read as read_committed readers read them
    crash_test     a user's own script, for pytest (fixtures)
    demo           "exactum demo": a query, and the same through Spark's own Kafka sink

Readers and oracle use nothing of exactum's own protocol. Nothing is imported here: pytest loads
this package wherever exactum is installed.
"""
