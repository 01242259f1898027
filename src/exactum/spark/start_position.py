"""Where a new query begins to read. A query that has a checkpoint goes on from there, whatever is said here."""

from __future__ import annotations

from enum import Enum

from exactum.errors import SettingRefused


class StartPosition(Enum):
    """The positions that need nothing but a word. Others (offsets, timestamps, groups) come as types of their own."""

    EARLIEST = "earliest"
    LATEST = "latest"

    def options(self) -> dict[str, str]:
        """The options of Spark's Kafka source that say it."""
        return {"startingOffsets": self.value}


def start_position(given: str | StartPosition) -> StartPosition:
    """
    Raises:
        SettingRefused: it is not a position that is known.
    """
    try:
        return StartPosition(given)
    except ValueError:
        known = ", ".join(repr(p.value) for p in StartPosition)
        raise SettingRefused(
            f"read_kafka(start={given!r}) is not known; it may be one of {known}. For single offsets or "
            'timestamps use spark.readStream.format("kafka") with Spark\'s startingOffsets.'
        ) from None
