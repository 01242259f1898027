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

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.custom.answer import called
from exactum.errors import (
    HALTING,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Rejection
from exactum.sinks.frames import FrameReader, packed, unpacked
from exactum.sinks.sink import StagedSink
from exactum.sinks.staged import Published, StagedEpoch, StagedPart, StagedTarget
from exactum.sinks.staging import StagedName, Staging
from exactum.sinks.writer import TaskFiles, TaskRows

if TYPE_CHECKING:
    import pyarrow as pa

# ---- one chunk -------------------------------------------------------------------------------


Send = Callable[["pa.RecordBatch", str], object]
"""Sends a record batch under a key, and returns nothing when the target has acknowledged it."""


@dataclass(frozen=True)
class RetryPolicy:
    """How a chunk is sent: up to ``tries_max`` times; pauses of ``backoff_ms``, doubled up to
    ``backoff_ms_max``.
    """

    tries_max: int
    backoff_ms: int
    backoff_ms_max: int

    def deliver(
        self, send: Send, batch: pa.RecordBatch, key: str, before_each_try: Callable[[], None]
    ) -> None:
        """
        Raises:
            Unavailable: no try was acknowledged; the target may have taken the chunk all the same.
            CodeFailed: ``send`` returned something; it is not tried again.
            ExactumError: one that says "stop" (HALT, FENCED), as ``send`` or ``before_each_try``
                raised it.
        """
        pause_ms = self.backoff_ms
        for tried in range(1, self.tries_max + 1):
            before_each_try()
            try:
                called(
                    send,
                    batch,
                    key,
                    what="send()",
                    then=f"So {batch.num_rows} rows with key {key!r} are not taken for "
                    "acknowledged. Correct send() and start the query again: then they are sent "
                    "again.",
                )
                return
            except Exception as error:
                if isinstance(error, ExactumError) and error.disposition in HALTING:
                    raise
                if tried == self.tries_max:
                    raise Unavailable(
                        f"None of {tried} tries to send {batch.num_rows} rows with key {key!r} was "
                        f"acknowledged; the last one: {type(error).__name__}: {error}. They are "
                        "decided and kept: bring the target back, or correct send(), and start the "
                        "query again."
                    ) from error
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self.backoff_ms_max)


# ---- the target ------------------------------------------------------------------------------


class ChunkRows(TaskRows):
    """One task's rows in chunks of ``rows_per_send``, each a frame: what is sent under one key is
    fixed when it is written. See ``sinks.writer.TaskRows``.
    """

    def __init__(self, rows_per_send: int) -> None:
        super().__init__(rows_per_send)
        self._rows_per_send = rows_per_send
        self._pieces: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, batch: pa.RecordBatch, files: TaskFiles) -> Rejection | None:
        while batch.num_rows:
            piece = batch.slice(0, self._rows_per_send - self._waiting_rows)
            batch = batch.slice(piece.num_rows)
            self._pieces.append(piece)
            self._waiting_rows += piece.num_rows
            if self._waiting_rows == self._rows_per_send:
                self.finish(files)
        return None

    def finish(self, files: TaskFiles) -> None:
        if not self._pieces:
            return
        import pyarrow as pa

        whole = pa.Table.from_batches(self._pieces).combine_chunks()
        for chunk in whole.to_batches():  # more than one where a column has over 2 GiB
            files.frames({}).write(packed(chunk), chunk.num_rows)
        self._pieces, self._waiting_rows = [], 0


class WriteAheadTarget(StagedTarget):
    """A target without transactions as a staged one: the driver sends the chunks of what is
    decided, in order, from where the last run stood.

    Beside a staged file lie its notes, which go with it:

        <identity>.claim-3      the third run that took the sending over; the highest may send
        <identity>.acked-3      how many chunks that run knows as acknowledged, from the first one
                                on; nobody else writes it, so that no older run sets it back

    The marker is the note of the last batch of which everything is sent (``Staging.published``),
    made durable before the batch counts as published.
    """

    def __init__(
        self,
        staging: Staging,
        run: QueryRun,
        *,
        send: Send,
        delivery: RetryPolicy,
        close: Callable[[], None],
    ) -> None:
        once = run.guarantee is Guarantee.AT_MOST_ONCE
        super().__init__(staging)
        self._incarnation: Incarnation = run.incarnation
        self._send = send
        self._delivery = RetryPolicy(1, 0, 0) if once else delivery
        self._close = close
        self._claims: dict[str, int] = {}

    def publish(self, epoch: StagedEpoch) -> Published:
        """Send what is not acknowledged yet.

        Raises:
            Fenced: a newer run has taken the sending over.
            Unavailable: the target or the staging did not answer.
            HeuristicOutcome: a file is damaged, or ``send`` said that the target will never take
                the rows.
        """
        if self.published(epoch) is Published.BEFORE:
            return Published.BEFORE
        for part in epoch.parts:
            try:
                self._send_rest(part)
            except FileNotFoundError:
                return self.published(epoch)  # another run may have sent it all meanwhile
        self.staging.note_published(epoch.batch_id)
        return Published.DONE

    def deliver(self, epoch: StagedEpoch) -> None:
        for part in epoch.parts:
            for number, chunk in self._chunks(part):
                key = f"{part.name.identity}.{number}"
                self._delivery.deliver(self._send, chunk, key, before_each_try=lambda: None)

    def waiting(self, name: StagedName) -> str:
        return f"{self._acknowledged(name.identity)} chunks are acknowledged"

    def close(self) -> None:
        self._close()

    # ---- sending -----------------------------------------------------------------------------

    def _send_rest(self, part: StagedPart) -> None:
        """
        Raises:
            FileNotFoundError: the file is gone.
        """
        identity = part.name.identity
        claim = self._claim(part.name)

        def still_ours() -> None:
            if self.staging.note(identity, f"claim-{claim + 1}") is not None:
                raise self._fenced(identity)
            # Notes go after the file: a claim that is missed is seen as a file that is gone.
            if not self.staging.is_there(part.name.file(0)):
                raise FileNotFoundError(identity)

        first, sent_rows = self._acknowledged(identity), 0
        for number, chunk in self._chunks(part):
            sent_rows += chunk.num_rows
            if number >= first:
                self._delivery.deliver(self._send, chunk, f"{identity}.{number}", still_ours)
                self.staging.write_note(identity, f"acked-{claim}", str(number + 1))
        if sent_rows != part.prepared.rows:
            raise self._damaged(part, f"it holds {sent_rows}")

    def _chunks(self, part: StagedPart) -> Iterator[tuple[int, pa.RecordBatch]]:
        """
        Raises:
            FileNotFoundError: the file is gone.
            HeuristicOutcome: it is damaged.
        """
        import pyarrow as pa

        with closing(self.staging.open_file(part.name.file(0))) as file:
            try:
                for number, (frame, _) in enumerate(FrameReader(file)):
                    yield number, unpacked(frame)
            except (EOFError, ValueError, pa.ArrowException) as error:
                raise self._damaged(part, str(error)) from error

    def _acknowledged(self, identity: str) -> int:
        """How many chunks are acknowledged, from the first one on."""
        most = claim = 0
        while claim == 0 or self.staging.note(identity, f"claim-{claim}") is not None:
            most = max(most, int(self.staging.note(identity, f"acked-{claim}") or 0))
            claim += 1
        return most

    def _claim(self, name: StagedName) -> int:
        """The run that decided has claim 0; every other one takes over from those before it."""
        if name.incarnation == self._incarnation:
            return 0
        if name.identity not in self._claims:
            number = 1
            while not self.staging.write_note_once(
                name.identity, f"claim-{number}", self._incarnation
            ):
                number += 1
            self._claims[name.identity] = number
        return self._claims[name.identity]

    def _damaged(self, part: StagedPart, how: str) -> HeuristicOutcome:
        return HeuristicOutcome(
            "STAGED_GONE",
            f"The rows of batch {part.name.batch_id} are decided, and "
            f"{self.staging.shown(part.name.file(0))} with {part.prepared.rows} rows is damaged: "
            f"{how}.\n{self._acknowledged(part.name.identity)} of its chunks are sent. "
            "Restore the file, or see docs/operations.md.",
        )

    def _fenced(self, identity: str) -> Fenced:
        return Fenced(
            f"Another run of this query has taken over the sending of {identity} (this one is "
            f"incarnation {self._incarnation}). This run stops; the other one sends the rest. Two "
            "drivers ran on one checkpoint, or an older one woke up: run the query in one place "
            "only."
        )


# ---- the sink --------------------------------------------------------------------------------


class WriteAheadSink(StagedSink):
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
        self.name = name or where
        self.rows = rows
        self._rows_per_send_max = rows_per_send_max
        self._delivery = RetryPolicy(tries_max, backoff_ms, backoff_ms_max)

    def send(self, batch: pa.RecordBatch, key: str) -> None:
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
        return self._send(batch, key)  # type: ignore[return-value]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Refuse a frame that ``send`` cannot take; called at start. Default: all are welcome.

        ``columns`` are (name, Spark's simple type string).

        Raises:
            FrameRefused: a column is missing or its type cannot be sent.
        """

    def close(self) -> None:
        """Called on the driver when the run ends, for connections of yours. Default: nothing."""

    # ---- the sink port ---------------------------------------------------------------------------

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """Called by exactum.

        Raises:
            SettingRefused: there is no place where rows can wait, or no run could claim them there.
        """
        target = self.target_of(run, participant)
        target.staging.open()
        if run.guarantee is Guarantee.EXACTLY_ONCE:
            # Else the first run that takes the sending over finds out, and the rows are decided.
            target.staging.write_note_once("tried", "claim", run.incarnation)
            target.staging.remove(["tried"])
        return self.open_with(run, target, ChunkRows, self._rows_per_send_max)

    def target_of(self, run: QueryRun, participant: str) -> WriteAheadTarget:
        """Called by exactum."""
        return WriteAheadTarget(
            self.staging_of(run, participant),
            run,
            send=self.send,
            delivery=self._delivery,
            close=self.close,
        )

    def __getstate__(self) -> dict[str, Any]:
        """``rows`` stays on the driver: it may hold on to a session."""
        return {**self.__dict__, "rows": None}
