"""What ``exactly_once`` and its like are given, checked where it is given: a wrong argument never
waits for a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exactum.errors import SettingRefused
from exactum.spark.control.stream import ControlStream
from exactum.spark.jvm.stream_writer import given_over_connect, given_to
from exactum.values.excerpt import cut

_SINK_METHODS = ("check_columns", "open")
_LOG_METHODS = ("read", "decide", "prune", "close")
_SINKS = (
    "KafkaSink, PostgresSink, MySQLSink, FileSink, DeltaSink, IcebergSink, or your own "
    "(TwoPhaseCommitSink, WriteAheadSink)"
)


def checked_sinks(sinks: Sequence[Any], dead_letters: Any, call: str) -> None:
    """Refuse what is no sink, none at all, and one sink given twice. ``call`` is what the user
    wrote, for messages.

    Raises:
        SettingRefused: see above; says what to write instead.
    """
    if not sinks:
        raise SettingRefused(
            "SINKS_WANTED",
            f"{call}() was given no sink. Pass at least one, for example "
            f'exactum.{call}(exactum.KafkaSink("totals", bootstrap_servers="localhost:9092")).',
        )
    for sink in sinks:
        _check_sink(sink, call)
    if dead_letters is not None:
        _check_sink(dead_letters, f"{call}(dead_letters=...)")
        if getattr(dead_letters, "rows", None) is not None:
            raise SettingRefused(
                "DEAD_LETTERS_VIEW",
                f"{call}(dead_letters={dead_letters!r}): the sink of the dead letters takes all of "
                "them, so it cannot have rows=. Remove it.",
            )
    everything = [*sinks, *([] if dead_letters is None else [dead_letters])]
    for place, sink in enumerate(everything):
        if any(sink is other for other in everything[:place]):
            raise SettingRefused(
                "SINK_TWICE",
                f"{call}() was given the same sink twice: {sink!r}. It would write every row "
                "twice. Give each sink once; for two parts of a batch make two sinks, each with "
                "rows= of its own.",
            )


def checked_writer(writer: Any) -> None:
    """
    Raises:
        SettingRefused: it is no writer of a stream, or has already what ``start`` gives it.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    over_connect = type(writer).__module__.startswith("pyspark.sql.connect.streaming.")
    if not over_connect and not isinstance(writer, DataStreamWriter):
        raise SettingRefused(
            "START_ARGUMENT",
            f"start() was given a {type(writer).__name__}. Give it what frame.writeStream is: "
            "once.start(frame.writeStream.trigger(processingTime='1 second'), checkpoint=...).",
        )
    if has := (given_over_connect(writer) if over_connect else given_to(writer)):
        raise SettingRefused(
            "START_ARGUMENT",
            f"start() was given a writer that has {' and '.join(has)} already. The sinks say where "
            "the rows go, and start() takes checkpoint= and name=. Remove what it has. Nothing was "
            "started.",
        )


def checked_checkpoint(checkpoint: Any) -> str:
    """
    Raises:
        SettingRefused: it is no place.
    """
    if isinstance(checkpoint, str | Path) and str(checkpoint).strip():
        _refuse_home(checkpoint, "START_ARGUMENT", "checkpoint")
        return str(checkpoint)
    raise SettingRefused(
        "START_ARGUMENT",
        f"checkpoint={checkpoint!r} must be a folder or a URL of the query's own, which outlives "
        'it: checkpoint="/data/checkpoints/orders".',
    )


def checked_decision_log(decision_log: Any, call: str) -> None:
    """
    Raises:
        SettingRefused: it can be no decision log.
    """
    if decision_log is None or (isinstance(decision_log, str | Path) and str(decision_log).strip()):
        _refuse_home(decision_log, "DECISION_LOG_ARGUMENT", "decision_log")
        return
    missing = [name for name in _LOG_METHODS if not callable(getattr(decision_log, name, None))]
    if missing or isinstance(decision_log, type):
        raise SettingRefused(
            "DECISION_LOG_ARGUMENT",
            f"{call}(decision_log={decision_log!r}): it must be a folder, a URL (postgresql://..., "
            f"s3://...), or an object with {', '.join(_LOG_METHODS)}.",
        )


def _refuse_home(place: object, code: str, argument: str) -> None:
    """Neither Spark nor Python knows what a shell means by ``~``: it would be a folder's name,
    below the folder in which the program was started.
    """
    if str(place).startswith("~"):
        raise SettingRefused(
            code,
            f"{argument}={str(place)!r}: ~ is what a shell replaces. Give the whole path, or "
            "os.path.expanduser(...) of it. Nothing was started.",
        )


def checked_control(control: Any, call: str) -> tuple[ControlStream, ...]:
    """The control streams that were given.

    Raises:
        SettingRefused: something else was given.
    """
    streams = (control,) if isinstance(control, ControlStream) else control
    if not isinstance(streams, list | tuple) or not all(
        isinstance(stream, ControlStream) for stream in streams
    ):
        raise SettingRefused(
            "CONTROL_ARGUMENT",
            f"{call}(control={control!r}): it must be what exactum.control_stream(...) returns, or "
            "a list of them.",
        )
    if len({id(stream) for stream in streams}) != len(streams):
        raise SettingRefused(
            "CONTROL_ARGUMENT", f"{call}(control=...) was given the same control stream twice."
        )
    return tuple(streams)


def checked_on_event(on_event: Any, call: str) -> None:
    """
    Raises:
        SettingRefused: it cannot be called.
    """
    if on_event is not None and not callable(on_event):
        raise SettingRefused(
            "START_ARGUMENT",
            f"{call}(on_event={on_event!r}): it must be a function of one event, or None.",
        )


def _check_sink(sink: Any, call: str) -> None:
    """
    Raises:
        SettingRefused: it is no sink.
    """
    if isinstance(sink, type) and _is_sink(sink):
        raise SettingRefused(
            "SINKS_WANTED",
            f"{call}() was given the class {sink.__name__}. Make a sink of it: "
            f"{sink.__name__}(...).",
        )
    if isinstance(sink, list | tuple):
        raise SettingRefused(
            "SINKS_WANTED",
            f"{call}() was given a {type(sink).__name__}. Pass the sinks one by one: "
            f"{call}(*sinks).",
        )
    if isinstance(sink, type) or not _is_sink(sink):
        raise SettingRefused(
            "SINKS_WANTED",
            f"{call}() was given {_shown(sink)}, which is no sink. A sink is a {_SINKS}.",
        )
    rows = getattr(sink, "rows", None)
    if rows is not None and not callable(rows):
        raise SettingRefused(
            "VIEW_ARGUMENT",
            f"{sink!r}: rows={rows!r} must be exactum.Rows(...), or a function from the batch's "
            "DataFrame to the DataFrame that this sink writes.",
        )


def _is_sink(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in _SINK_METHODS) and hasattr(
        value, "name"
    )


SHOWN_CHARACTERS_MAX = 100


def _shown(value: Any) -> str:
    """The value as text for a message, cut: it may be anything."""
    return f"{cut(repr(value), SHOWN_CHARACTERS_MAX)} ({type(value).__name__})"
