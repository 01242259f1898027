"""``WriteAheadSink``: a target without transactions (an HTTP API, a queue, a mail server).

    def send(batch, key):
        post(url, batch.to_pylist(), {"Idempotency-Key": key}).raise_for_status()

    WriteAheadSink(send=send)

At prepare a task's rows become durable in the staging. After the decision the driver sends them, in
order, in chunks, and notes each acknowledged chunk durably.

What holds: no row of an undecided epoch is ever sent, no row of a decided one is ever lost, and
toward the target it is *at least once*: a chunk whose acknowledgement was lost (the driver died,
the reply timed out) is sent again. Only that chunk is, with the same rows in the same order under
the same key: a target that keeps the keys it has seen makes it exactly once. Two drivers at one
time (an old one that was stalled wakes up) may both send: the newer one takes the sending over, and
the older one stops at its next chunk, so it repeats the chunk that it had in hand and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.custom.sending import RetryPolicy, Send, send_once
from exactum.custom.write_ahead_target import ChunkRows, WriteAheadTarget
from exactum.errors import SettingRefused
from exactum.problem import Problem, ok
from exactum.protocol.inspection import Inspector
from exactum.protocol.model import new_incarnation
from exactum.protocol.scope import Scope
from exactum.protocol.sink import (
    DEAD_LETTER_COLUMNS,
    Guarantee,
    NotAFunction,
    OpenSink,
    QueryRun,
    TaskName,
    WriteOrder,
    Writer,
)
from exactum.sinks.staged import StagedParticipant
from exactum.sinks.staging import TRACE, Staging, reach_staging, staging_of, wanted
from exactum.sinks.writer import StagedWriter
from exactum.storage.storage import Storage


class WriteAheadSink(NotAFunction):
    """Sends a frame's rows to a target of yours: give ``send``, or a subclass that overrides it.

    Args:
        send: the function that sends; see the method of this name. None: a subclass overrides the
            method. It stays on the driver.
        name: name of this sink in the decision records; default: the class's name. Keep it from
            start to start.
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.
        rows_per_send_max: most rows in one call of ``send``, and so the most that is ever repeated;
            default 500.
        tries_max: how often a chunk is tried before the query stops with ``Unavailable``; default
            5.
        backoff_ms: pause after the first failure, in ms, doubled with each; default 200.
        backoff_ms_max: longest pause, in ms; default 5000.

    Raises:
        SettingRefused: a setting that cannot work.
    """

    waits_in_staging = True
    has_one_sender = True
    """Whoever commits becomes the one that sends."""

    def __init__(
        self,
        send: Send | None = None,
        *,
        name: str | None = None,
        rows: Callable[[Any], Any] | None = None,
        rows_per_send_max: int = 500,
        tries_max: int = 5,
        backoff_ms: int = 200,
        backoff_ms_max: int = 5_000,
    ) -> None:
        where = type(self).__name__
        if send is None and type(self).send is WriteAheadSink.send:
            raise SettingRefused(
                "WRITE_AHEAD_ARGUMENT",
                f"{where}: give send=, a function of (batch, key), or override the method send().",
            )
        if send is not None and not callable(send):
            raise SettingRefused(
                "WRITE_AHEAD_ARGUMENT", f"{where}: send={send!r} is not a function of (batch, key)."
            )
        for setting, value, least in (
            ("rows_per_send_max", rows_per_send_max, 1),
            ("tries_max", tries_max, 1),
            ("backoff_ms", backoff_ms, 0),
            ("backoff_ms_max", backoff_ms_max, 0),
        ):
            if not isinstance(value, int) or value < least:
                raise SettingRefused(
                    "WRITE_AHEAD_ARGUMENT",
                    f"{where}: {setting}={value!r} must be a whole number, at least {least}.",
                )
        self._send = send
        self._name = name
        self._rows = rows
        self._rows_per_send_max = rows_per_send_max
        self._delivery = RetryPolicy(tries_max, backoff_ms, backoff_ms_max)

    def send(self, batch: Any, key: str) -> None:
        """Send one Arrow record batch (never empty), and return when the target has acknowledged
        it.

        Called on the driver, after the decision, one call at a time, by one thread or another.
        ``key`` (letters, digits, ``. _ -``, at most
        211 characters) is the same for the same rows whenever and by whomever they are sent again,
        and belongs to no others: pass it on as the idempotency key. Bound every wait in it.

        It returns nothing: a status, a boolean, a future or a coroutine that it returns stops the
        query, for it may say that the target has not taken the rows. Whatever it raises is tried
        again, ``tries_max`` times in all. If the target says that it
        will never take these rows, raise ``HeuristicOutcome``: that stops the query at once, and a
        person must look, for the rows are decided. Better: check rows before they are written.
        """
        if self._send is None:
            raise SettingRefused(
                "WRITE_AHEAD_ARGUMENT",
                f"{type(self).__name__}: send() is not overridden and no function was given.",
            )
        send_once(self._send, batch, key)

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Refuse a frame that ``send`` cannot take; called at start. Default: all are welcome.

        ``columns`` are (name, Spark's simple type string).

        Raises:
            FrameRefused: a column is missing or its type cannot be sent.
        """

    def close(self) -> None:
        """Called on the driver when the run ends, for connections of yours. Default: nothing."""

    # ---- the sink port ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    @property
    def name(self) -> str:
        return self._name or type(self).__name__

    @property
    def rows(self) -> Callable[[Any], Any] | None:
        return self._rows

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return DEAD_LETTER_COLUMNS

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """Called by exactum.

        Raises:
            SettingRefused: there is no place where rows can wait.
        """
        staging = staging_of(run, Scope(run.query_id, participant), repr(self))
        factory = ChunkWriterFactory(staging, self._rows_per_send_max)
        return OpenSink(
            StagedParticipant(staging, self._target(staging, run)),
            factory,
            trace=TRACE,
            reach=reach_staging(run),
        )

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """Called by exactum, for an operator's commands."""
        from exactum.sinks.inspection import StagedInspector

        place = Staging(wanted(staging, repr(self)), Scope(query_id, participant))
        run = QueryRun(query_id, new_incarnation(), Guarantee.EXACTLY_ONCE)
        return StagedInspector(place, self._target(place, run))

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        yield ok(self.name, "Its target was not tried: only its own send() knows it.")

    def _target(self, staging: Staging, run: QueryRun) -> WriteAheadTarget:
        return WriteAheadTarget(
            staging,
            run,
            f"sink {staging.scope.participant!r}",
            send=self.send,
            delivery=self._delivery,
            close=self.close,
        )

    def __getstate__(self) -> dict[str, Any]:
        """``rows`` stays on the driver: it may hold on to a session."""
        return {**self.__dict__, "_rows": None}


@dataclass(frozen=True)
class ChunkWriterFactory:
    """Goes to the executors; opens a writer there."""

    staging: Staging
    rows_per_send: int

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        rows = ChunkRows(self.rows_per_send)
        return StagedWriter(self.staging, order, task, rows, at=WriteAheadTarget.at, facts={})
