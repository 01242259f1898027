"""What a writer of Spark Connect's was given, read from the message that it sends
(``WriteStreamOperationStart`` in spark/connect/commands.proto).
"""

from __future__ import annotations

from typing import Any

from exactum.spark.jvm.frames import FOR_EACH_BATCH, WRITER_OPTIONS

_SAFE_TRIGGERS = None, "processing_time_interval", "available_now", "once"
_ASYNC = "asyncprogresstrackingenabled"


def given_over_connect(writer: Any) -> list[str]:
    """As ``frames.given_to`` of a classic session's."""
    message = writer._write_proto
    names = [FOR_EACH_BATCH] if message.HasField("foreach_batch") else []
    names += ["format"] if message.format else []
    options = {name.lower() for name in message.options}
    names += [shown for name, shown in WRITER_OPTIONS.items() if name in options]
    return names + (["queryName"] if message.query_name else [])


def unsafe_over_connect(writer: Any) -> list[str]:
    """What it has under which a batch may have other offsets after a crash."""
    message = writer._write_proto
    trigger = message.WhichOneof("trigger")
    options = [(name, value) for name, value in message.options.items() if name.lower() == _ASYNC]
    found = [f"{name}={value}" for name, value in options if value.lower() != "false"]
    return found if trigger in _SAFE_TRIGGERS else [trigger, *found]
