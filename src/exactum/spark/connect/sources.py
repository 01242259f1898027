"""The sources of a query over Spark Connect, by the plan that the client sends
(spark/connect/relations.proto).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exactum.spark.live import RunningSource

_TABLES = {"kafka": "kafkatable"}
"""By format what Spark calls the table behind it; the others are known by no name."""


def sources_of(writer: Any) -> tuple[RunningSource, ...]:
    """What the writer's frame streams, in the order in which Spark numbers sources: as they stand
    in the plan, from the left. A view's are not in the plan.
    """
    command = writer._write_stream.command(writer._session.client)
    reads = list(streaming_reads(command.write_stream_operation_start.input))
    found = []
    for index, read in enumerate(reads):
        source = read.data_source  # empty for a table
        found.append(
            RunningSource(
                index,
                reads.index(read),
                _TABLES.get(source.format.lower(), ""),
                dict(source.options),
                f"sources/{index}",
            )
        )
    return tuple(found)


def streaming_reads(message: Any) -> Iterator[Any]:
    """What a part of a plan reads as a stream, from the left."""
    return (read for read in messages(message, "spark.connect.Read") if read.is_streaming)


def messages(message: Any, kind: str) -> Iterator[Any]:
    """The parts of this kind, from the left; those within another one of it as well."""
    if message.DESCRIPTOR.full_name == kind:
        yield message
    for field, value in message.ListFields():  # by their numbers: left stands before right
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in [value] if hasattr(value, "DESCRIPTOR") else value:
            yield from messages(inner, kind)
