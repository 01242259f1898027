"""What a writer of a stream was given (DataStreamWriter.scala, of Spark's classic sessions)."""

from __future__ import annotations

from typing import Any

_FUNCTION = "foreachBatchWriter"
_OPTIONS = {"checkpointlocation": "checkpointLocation", "queryname": "queryName", "path": "path"}
_FORMAT, _FOR_EACH_BATCH = "spark.sql.sources.default", "foreachBatch"


def given_to(writer: Any) -> list[str]:
    """Which of foreachBatch, format, checkpointLocation, queryName and path it has. Spark would let
    the last one count, without a word.
    """
    options = _field(writer, "extraOptions")
    names = [shown for name, shown in _OPTIONS.items() if options.contains(name)]
    if _field(writer, _FUNCTION) is not None:
        return [_FOR_EACH_BATCH, *names]
    default = writer._df.sparkSession.conf.get(_FORMAT)
    return names if _field(writer, "source") == default else ["format", *names]


def given_over_connect(writer: Any) -> list[str]:
    """The same of a writer of Spark Connect's."""
    message = writer._write_proto
    names = [_FOR_EACH_BATCH] if message.HasField("foreach_batch") else []
    names += ["format"] if message.format else []
    options = {name.lower() for name in message.options}
    names += [shown for name, shown in _OPTIONS.items() if name in options]
    return names + (["queryName"] if message.query_name else [])


def _field(writer: Any, name: str) -> Any:
    plain = writer._jwrite
    field = plain.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(plain)
