"""The log of a ``WriteAheadSink``: rows on their way to a target without transactions, in a folder
for each sink.

    <folder>/exactum-wal/<query>/<participant>/
        <identity>.arrow      the rows of one transaction, an Arrow stream: there until all are
                              sent, or aborted
        <identity>.acked      decided; one line for each acknowledged chunk, fsynced; kept when the
                              rows are gone
        <identity>.claim-3    the third run that took the sending over; the highest claim may send
        sent-<batch>          every decided transaction up to this batch is sent; the highest counts

*What became of a transaction* is read in this order: rows are there: open, or on their way. No
rows, but every chunk is acknowledged: sent. Else ``sent-<its batch or a later one>``: sent. Else it
was aborted, or somebody removed it. The order in which files are removed (rows, then after the mark
the rest) makes that true after a crash between any two steps; a later batch's mark is a proof
because no batch is begun before all earlier ones are sent.

The rows' own presence always counts first: when an operator has a batch run again, its new
transaction is sent although an old mark stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from exactum import durable
from exactum.custom.chunks import chunks
from exactum.custom.transaction_name import TransactionName, TransactionScope, escaped
from exactum.errors import HeuristicOutcome

FOLDER = "exactum-wal"
LOOKS = 3
"""How often the marks are looked for: one that is being replaced may escape a listing."""

_ROWS = re.compile(r"(?P<identity>.+)\.arrow")
_TRACE = re.compile(r"(?P<identity>.+)\.(acked|claim-\d+)")
_MARK = re.compile(r"sent-(\d{20})")
_LINE = re.compile(r"\d{10}")


class WriteAheadLog:
    """The transactions of one participant of one query. Raises plain ``OSError`` where the file
    system fails.
    """

    def __init__(self, folder: Path, scope: TransactionScope) -> None:
        self._scope = scope
        self.folder = folder / FOLDER / escaped(scope.query_id) / escaped(scope.participant)

    def rows_path(self, identity: str) -> Path:
        return self.folder / f"{identity}.arrow"

    def transactions(self) -> list[TransactionName]:
        """Those whose rows are there: being written, prepared, or on their way."""
        matches = (_ROWS.fullmatch(path.name) for path in self.folder.iterdir())
        names = (self._scope.find(match["identity"]) for match in matches if match)
        return [name for name in names if name is not None]

    # ---- rows --------------------------------------------------------------------------------

    def has_rows(self, identity: str) -> bool:
        return self.rows_path(identity).exists()

    def remove_rows(self, identity: str) -> None:
        """Idempotent. Durable after ``sync``."""
        durable.remove(self.rows_path(identity))

    def read(self, identity: str, rows_per_chunk: int, first: int) -> Iterator[tuple[int, Any]]:
        """The chunks from number ``first`` on, each a record batch; the same number is always the
        same rows.

        Raises:
            FileNotFoundError: the rows are gone.
            HeuristicOutcome: the file is damaged.
        """
        import pyarrow as pa

        path = self.rows_path(identity)
        with pa.OSFile(str(path), "rb") as file:
            try:
                with pa.ipc.open_stream(file) as stream:
                    yield from chunks(stream, rows_per_chunk, first)
            except pa.ArrowInvalid as error:
                raise HeuristicOutcome(
                    "WRITE_AHEAD_LOST",
                    f"{path} is damaged ({error}), and the rows in it are decided: their chunks "
                    f"from number {first} on ({rows_per_chunk} rows each) may not have been sent. "
                    "docs/guarantees.md says how to go on.",
                ) from error

    # ---- progress ----------------------------------------------------------------------------

    def is_decided(self, identity: str) -> bool:
        return self._acked_path(identity).exists()

    def begin_sending(self, identities: Sequence[str]) -> None:
        """Note that they are decided. Idempotent."""
        fresh = [i for i in identities if not self.is_decided(i)]
        for identity in fresh:
            durable.touch(self._acked_path(identity))
        if fresh:
            self.sync()

    def acknowledged(self, identity: str) -> int:
        """How many chunks are acknowledged, from the first one on."""
        try:
            text = self._acked_path(identity).read_text()
        except FileNotFoundError:
            return 0
        # Runs send in order, each from where the last one stood, so the highest number says it for
        # all before.
        return max((int(line) + 1 for line in text.split("\n") if _LINE.fullmatch(line)), default=0)

    def acknowledge(self, identity: str, number: int) -> None:
        """Chunk ``number`` is acknowledged, durably. Idempotent.

        Raises:
            FileNotFoundError: all is sent, by another run, and tidied up.
        """
        # The newline before it ends a line that a crash has torn.
        durable.append(self._acked_path(identity), f"\n{number:010d}\n")

    def is_marked(self, batch_id: int) -> bool:
        """Whether all that was decided up to ``batch_id`` is known to be sent."""
        return any(any(b >= batch_id for b in self._marks()) for _ in range(LOOKS))

    def mark(self, batch_id: int) -> None:
        """All decided transactions up to ``batch_id`` are sent: note it, then forget the details.
        Idempotent.
        """
        before = self._marks()
        durable.touch(self.folder / f"sent-{batch_id:020d}")
        self.sync()
        listed = [path.name for path in self.folder.iterdir()]
        with_rows = {match["identity"] for match in map(_ROWS.fullmatch, listed) if match}
        for match in filter(None, map(_TRACE.fullmatch, listed)):
            name = self._scope.find(match["identity"])
            if (
                name is not None
                and name.batch_id <= batch_id
                and match["identity"] not in with_rows
            ):
                durable.remove(self.folder / match[0])
        # The highest one of before stays for now: a listing that runs at this moment sees it.
        for old in before:
            if old < max(before):
                durable.remove(self.folder / f"sent-{old:020d}")

    def sync(self) -> None:
        durable.sync_folder(self.folder)

    # ---- claims ------------------------------------------------------------------------------

    def claim(self, identity: str) -> int:
        """Take the sending over from every run that claimed it before; returns the number of the
        claim, from 1.
        """
        number = 1
        while not durable.create_empty(self._claim_path(identity, number)):
            number += 1
        return number

    def is_taken_over(self, identity: str, claim: int) -> bool:
        """Whether a later claim than ``claim`` (0: the run that decided) is there."""
        return self._claim_path(identity, claim + 1).exists()

    # ---- names -------------------------------------------------------------------------------

    def _acked_path(self, identity: str) -> Path:
        return self.folder / f"{identity}.acked"

    def _claim_path(self, identity: str, number: int) -> Path:
        return self.folder / f"{identity}.claim-{number}"

    def _marks(self) -> list[int]:
        return [
            int(match[1]) for path in self.folder.iterdir() if (match := _MARK.fullmatch(path.name))
        ]
