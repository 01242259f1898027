"""exactum's own switches among a session's settings."""

from __future__ import annotations

from pyspark.sql import SparkSession


def is_on(session: SparkSession, name: str) -> bool:
    """Whether the setting is anything but ``false``. What is not set is on."""
    return str(session.conf.get(name, "true")).lower() != "false"
