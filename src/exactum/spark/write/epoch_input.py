"""Where the rows of an epoch come from, for an error that the same rows will meet again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exactum.checkpoint.partition_offsets import from_json, name_of
from exactum.errors import CodeFailed, RowsRefused
from exactum.protocol.model import SourceOffsets

SHOWN_MAX = 8


@contextmanager
def named(offsets: SourceOffsets) -> Iterator[None]:
    """Adds to an error about rows which records the epoch reads: the row is among them.

    Raises:
        RowsRefused, CodeFailed: as they were raised within, with more to say.
    """
    try:
        yield
    except (RowsRefused, CodeFailed) as error:
        text = text_of(offsets)
        if not text:
            raise
        # "from None": Spark shows the printed traceback, and the same message twice would bury the
        # end of it.
        raise type(error)(f"{error} {text}") from None


def text_of(offsets: SourceOffsets) -> str:
    """Which records of Kafka's partitions these are, half-open; empty where no source says so."""
    found: list[str] = []
    for place, end in enumerate(offsets.end):
        before = from_json(offsets.start[place]) if place < len(offsets.start) else {}
        for partition, last in sorted(from_json(end).items()):
            first = before.get(partition)
            if first is None:
                found.append(f"{name_of(partition)} before {last}")
            elif first < last:
                found.append(f"{name_of(partition)} from {first} to before {last}")
    if not found:
        return ""
    more = f", and {len(found) - SHOWN_MAX} more partitions" if len(found) > SHOWN_MAX else ""
    return f"The epoch reads these offsets: {', '.join(found[:SHOWN_MAX])}{more}."
