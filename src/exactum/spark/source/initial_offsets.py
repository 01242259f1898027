"""Where a Kafka source of a query once began: what Spark keeps in
``<checkpoint>/sources/<n>/0``.
"""

from __future__ import annotations

from exactum.checkpoint.offset_log import ReadText
from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.spark.source.query_sources import RunningSource


def initial_file(source: RunningSource) -> str | None:
    """The file's path relative to the checkpoint; None where Spark does not tell."""
    return None if source.metadata is None else f"{source.metadata}/0"


def initial_offsets(read: ReadText, source: RunningSource) -> Offsets:
    """The offsets with which the source began; empty where they are not on record.

    The file is a zero byte, a line ``v1``, then one line of JSON.
    """
    name = initial_file(source)
    text = read(name) if name is not None and source.is_kafka else None
    return {} if text is None else from_json(text.partition("\n")[2])
