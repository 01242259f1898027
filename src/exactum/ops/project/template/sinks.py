"""Where the query writes: for job.py, and for exactum's commands by --sinks sinks.py:SINKS."""

import os

import exactum

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "127.0.0.1:9092")


def sinks(servers: str) -> list[exactum.KafkaSink]:
    """All sinks of the query, in the Kafka at ``servers``."""
    return [exactum.KafkaSink("shouted", bootstrap_servers=servers)]


SINKS = sinks(SERVERS)
