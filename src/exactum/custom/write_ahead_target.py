"""A target without transactions as a staged one: the driver sends the chunks of what is decided, in
order, from where the last run stood.

Beside a staged file lie its notes, which go with it:

    <identity>.acked        how many chunks are acknowledged, from the first one on
    <identity>.claim-3      the third run that took the sending over; the highest claim may send

The marker is the note of the last batch of which everything is sent (``Staging.published``), made
durable before the batch counts as published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from exactum.custom.sending import RetryPolicy, Send
from exactum.errors import EpochAborted, Fenced, HeuristicOutcome
from exactum.protocol.model import Incarnation, PreparedTransaction
from exactum.protocol.sink import Guarantee, QueryRun, Rejection
from exactum.sinks.frames import FrameReader, packed, unpacked
from exactum.sinks.staged import Published, StagedEpoch, StagedPart, StagedTarget
from exactum.sinks.staging import StagedName, Staging
from exactum.sinks.writer import TaskFiles, TaskRows


class ChunkRows(TaskRows):
    """One task's rows in chunks of ``rows_per_send``, each a frame: what is sent under one key is
    fixed when it is written. See ``sinks.writer.TaskRows``.
    """

    def __init__(self, rows_per_send: int) -> None:
        self._rows_per_send = rows_per_send
        self._pieces: list[Any] = []
        self._waiting_rows = 0

    def write(self, batch: Any, files: TaskFiles) -> Rejection | None:
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
    """See the base class. ``shown`` names the sink in messages."""

    at = ""

    def __init__(
        self,
        staging: Staging,
        run: QueryRun,
        shown: str,
        *,
        send: Send,
        delivery: RetryPolicy,
        close: Callable[[], None],
    ) -> None:
        once = run.guarantee is Guarantee.AT_MOST_ONCE
        self._staging = staging
        self._incarnation: Incarnation = run.incarnation
        self._send = send
        self._delivery = RetryPolicy(1, 0, 0) if once else delivery
        self._close = close
        self._claims: dict[str, int] = {}
        self.shown = shown

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        return self._staging.published()

    def forget_batches(self) -> None:
        self._staging.forget_published()

    def published(self, epoch: StagedEpoch) -> Published:
        noted = self._staging.published()
        is_sent = noted is not None and noted >= epoch.batch_id
        return Published.BEFORE if is_sent else Published.MISSING

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
        self._staging.note_published(epoch.batch_id)
        return Published.DONE

    def deliver(self, epoch: StagedEpoch) -> None:
        for part in epoch.parts:
            try:
                for number, chunk in self._chunks(part):
                    key = f"{part.name.identity}.{number}"
                    self._delivery.deliver(self._send, chunk, key, before_each_try=lambda: None)
            except FileNotFoundError as error:
                raise EpochAborted(
                    f"{self.shown}: staged files of batch {epoch.batch_id} are gone. Something "
                    f"else removes them from {self._staging.where}."
                ) from error

    def by_hand(self, epoch: StagedEpoch) -> str:
        return self._staging.by_hand(epoch.batch_id)

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
            if self._staging.note(identity, f"claim-{claim + 1}") is not None:
                raise self._fenced(identity)
            # Notes go after the file: a claim that is missed is seen as a file that is gone.
            if not self._staging.is_there(part.name.file(0)):
                raise FileNotFoundError(identity)

        first, sent_rows = self._acknowledged(identity), 0
        for number, chunk in self._chunks(part):
            sent_rows += chunk.num_rows
            if number >= first:
                self._delivery.deliver(self._send, chunk, f"{identity}.{number}", still_ours)
                self._staging.write_note(identity, "acked", str(number + 1))
        if sent_rows != part.prepared.rows:
            raise self._damaged(part, f"it holds {sent_rows}")

    def _chunks(self, part: StagedPart) -> Iterator[tuple[int, Any]]:
        """
        Raises:
            FileNotFoundError: the file is gone.
            HeuristicOutcome: it is damaged.
        """
        import pyarrow as pa

        with closing(self._staging.open_file(part.name.file(0))) as file:
            try:
                for number, (frame, _) in enumerate(FrameReader(file)):
                    yield number, unpacked(frame)
            except (EOFError, ValueError, pa.ArrowException) as error:
                raise self._damaged(part, str(error)) from error

    def _acknowledged(self, identity: str) -> int:
        """How many chunks are acknowledged, from the first one on."""
        text = self._staging.note(identity, "acked")
        return int(text) if text else 0

    def _claim(self, name: StagedName) -> int:
        """The run that decided has claim 0; every other one takes over from those before it."""
        if name.incarnation == self._incarnation:
            return 0
        if name.identity not in self._claims:
            number = 1
            while not self._staging.write_note_once(
                name.identity, f"claim-{number}", self._incarnation
            ):
                number += 1
            self._claims[name.identity] = number
        return self._claims[name.identity]

    def _damaged(self, part: StagedPart, how: str) -> HeuristicOutcome:
        return HeuristicOutcome(
            "STAGED_GONE",
            f"The rows of batch {part.name.batch_id} are decided, and "
            f"{self._staging.shown(part.name.file(0))} with {part.prepared.rows} rows is damaged: "
            f"{how}.\n{self._acknowledged(part.name.identity)} of its chunks are sent. "
            "Restore the file, or see docs/guarantees.md.",
        )

    def _fenced(self, identity: str) -> Fenced:
        return Fenced(
            f"Another run of this query has taken over the sending of {identity} (this one is "
            f"incarnation {self._incarnation}). This run stops; the other one sends the rest. Two "
            "drivers ran on one checkpoint, or an older one woke up: run the query in one place "
            "only."
        )
