"""What a writer of a stream was given (DataStreamWriter.scala, of Spark's classic sessions)."""

from __future__ import annotations

from typing import Any

_FUNCTION = "foreachBatchWriter"
_OPTIONS = {"checkpointlocation": "checkpointLocation", "queryname": "queryName"}


def given_to(writer: Any) -> list[str]:
    """Which of foreachBatch, checkpointLocation and queryName it has. Spark would let the last one
    count, without a word.
    """
    options = _field(writer, "extraOptions")
    names = [shown for name, shown in _OPTIONS.items() if options.contains(name)]
    return names if _field(writer, _FUNCTION) is None else ["foreachBatch", *names]


def given_over_connect(writer: Any) -> list[str]:
    """The same of a writer of Spark Connect's."""
    message = writer._write_proto
    names = ["foreachBatch"] if message.HasField("foreach_batch") else []
    has_checkpoint = "checkpointlocation" in {name.lower() for name in message.options}
    names += ["checkpointLocation"] if has_checkpoint else []
    return names + (["queryName"] if message.query_name else [])


def _field(writer: Any, name: str) -> Any:
    plain = writer._jwrite
    field = plain.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(plain)
