"""What ``exactly_once`` and its like are given, checked where it is given: a wrong argument never
waits for a batch. What is refused is a ``SettingRefused`` that says what to write instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum import events
from exactum.checkpoint.query_place import Places
from exactum.errors import SettingRefused
from exactum.protocol.sink import DEAD_LETTERS, Guarantee, Sink, participant_names
from exactum.spark.control.stream import ControlStream
from exactum.spark.jvm.frames import FOR_EACH_BATCH, WRITER_OPTIONS, given_to
from exactum.values.excerpt import cut

_SINK_METHODS = ("check_columns", "open")
_LOG_METHODS = ("read", "decide", "prune", "close")
_SINKS = (
    "KafkaSink(...), PostgresSink, MySQLSink, FileSink, DeltaSink, IcebergSink, or your own "
    "(TwoPhaseCommitSink, WriteAheadSink)"
)
SHOWN_CHARACTERS_MAX = 100


@dataclass(frozen=True)
class Targets:
    """A query's sinks, and the sink for the rows that these refuse, if there is one."""

    sinks: tuple[Sink, ...]
    dead_letters: Sink | None = None

    def all(self) -> tuple[Sink, ...]:
        return self.sinks if self.dead_letters is None else (*self.sinks, self.dead_letters)

    def names(self) -> list[str]:
        """The participants' names: the sinks' own, the later of equal ones numbered, then
        ``DEAD_LETTERS``.
        """
        names = participant_names(self.sinks)
        return names if self.dead_letters is None else [*names, DEAD_LETTERS]


@dataclass(frozen=True)
class DeliverySettings:
    """One call of ``exactly_once``, ``at_least_once`` or ``at_most_once``: its checked
    arguments.
    """

    targets: Targets
    guarantee: Guarantee
    places: Places
    control: tuple[ControlStream, ...]
    on_event: events.Listener | None

    @staticmethod
    def checked(
        targets: Targets, guarantee: Guarantee, places: Places, control: Any, on_event: Any
    ) -> DeliverySettings:
        """
        Raises:
            SettingRefused: one of these cannot be.
        """
        call = guarantee.name.lower()  # what the user wrote, for messages
        _check_sinks(targets.sinks, targets.dead_letters, call)
        _check_decision_log(places.decision_log, call)
        if on_event is not None and not callable(on_event):
            raise SettingRefused(
                "START_ARGUMENT",
                f"{call}(on_event={on_event!r}): it must be a function of one event, or None.",
            )
        streams = _checked_control(control, call)
        return DeliverySettings(targets, guarantee, places, streams, on_event)


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
    if has := (_given_over_connect(writer) if over_connect else given_to(writer)):
        raise SettingRefused(
            "START_ARGUMENT",
            f"start() was given a writer that has {' and '.join(has)} already. The sinks say where "
            "the rows go, and start() takes checkpoint= and name=. Remove what it has. Nothing was "
            "started.",
        )


def _given_over_connect(writer: Any) -> list[str]:
    """As ``given_to``, by the message that it sends (``WriteStreamOperationStart`` in
    spark/connect/commands.proto).
    """
    message = writer._write_proto
    names = [FOR_EACH_BATCH] if message.HasField("foreach_batch") else []
    names += ["format"] if message.format else []
    options = {name.lower() for name in message.options}
    names += [shown for name, shown in WRITER_OPTIONS.items() if name in options]
    return names + (["queryName"] if message.query_name else [])


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


def _check_sinks(sinks: Sequence[Any], dead_letters: Any, call: str) -> None:
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


def _check_sink(sink: Any, call: str) -> None:
    is_sink = hasattr(sink, "name") and all(
        callable(getattr(sink, name, None)) for name in _SINK_METHODS
    )
    if isinstance(sink, type) or not is_sink:
        shown = f"{cut(repr(sink), SHOWN_CHARACTERS_MAX)} ({type(sink).__name__})"
        raise SettingRefused(
            "SINKS_WANTED",
            f"{call}() was given {shown}, which is no sink. Pass sinks one by one, of a list "
            f"{call}(*sinks): each a {_SINKS}.",
        )
    rows = getattr(sink, "rows", None)
    if rows is not None and not callable(rows):
        raise SettingRefused(
            "VIEW_ARGUMENT",
            f"{sink!r}: rows={rows!r} must be exactum.Rows(...), or a function from the batch's "
            "DataFrame to the DataFrame that this sink writes.",
        )


def _check_decision_log(decision_log: Any, call: str) -> None:
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


def _checked_control(control: Any, call: str) -> tuple[ControlStream, ...]:
    streams = (control,) if isinstance(control, ControlStream) else control
    if not isinstance(streams, list | tuple) or not all(
        isinstance(stream, ControlStream) for stream in streams
    ):
        raise SettingRefused(
            "CONTROL_ARGUMENT",
            f"{call}(control={control!r}): it must be what exactum.control_stream(...) returns, or "
            "a list of them.",
        )
    names = [stream.topic for stream in streams]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:  # what tasks are given, and what is on record, goes by the topic's name
        raise SettingRefused(
            "CONTROL_ARGUMENT",
            f"{call}(control=...) was given {names.count(twice[0])} streams of topics named "
            f"{twice[0]!r}. Give each stream once; to use topics of one name on two clusters, "
            "mirror one of them under another name.",
        )
    return tuple(streams)
