"""The log of a ``WriteAheadSink``: rows on their way to a target without transactions, in a folder
or a prefix of an object store for each sink.

    <place>/exactum-wal/<query>/<participant>/
        scope                      which query and sink this is, for people
        <identity>/rows.arrow      the rows of one transaction, an Arrow stream: there until all
                                   are sent, or aborted
        <identity>/decided         from before its first chunk is sent
        <identity>/acked-<chunk>   this chunk and all before it are acknowledged; the highest counts
        <identity>/claim-3         the third run that took the sending over; the highest may send
        sent-<batch>               every decided transaction up to this batch is sent; the highest
                                   counts

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
from dataclasses import dataclass
from typing import Any

from exactum.custom.chunks import chunks
from exactum.custom.transaction_name import TransactionName, TransactionScope, escaped
from exactum.errors import HeuristicOutcome
from exactum.storage.storage import Entry, Storage

FOLDER = "exactum-wal"
SCOPE = "scope"
LOOKS = 3
"""How often the marks are looked for: one that is being replaced may escape a listing."""

_ROWS = "rows.arrow"
_DECIDED = "decided"
_ACKED = re.compile(r"acked-(\d{10})")
_MARK = re.compile(r"sent-(\d{20})")


@dataclass(frozen=True)
class WriteAheadLog:
    """The transactions of one participant of one query. ``storage`` is theirs alone. Raises as
    ``Storage`` does.
    """

    storage: Storage
    scope: TransactionScope

    @staticmethod
    def at(place: Storage, scope: TransactionScope) -> WriteAheadLog:
        """The one of ``scope`` among those at a place."""
        names = f"{FOLDER}/{escaped(scope.query_id)}/{escaped(scope.participant)}"
        return WriteAheadLog(place.below(names), scope)

    def transactions(self) -> list[TransactionName]:
        """Those whose rows are there: being written, prepared, or on their way."""
        files = (entry.name.split("/") for entry in self.storage.entries())
        found = {path[0] for path in files if path[-1] == _ROWS or path[-1].endswith(".tmp")}
        names = map(self.scope.find, sorted(found))
        return [name for name in names if name is not None]

    # ---- rows --------------------------------------------------------------------------------

    def rows_name(self, identity: str) -> str:
        """Below the root of the storage."""
        return f"{identity}/{_ROWS}"

    def rows_path(self, identity: str) -> str:
        """For messages."""
        return f"{self.storage.where}/{self.rows_name(identity)}"

    def has_rows(self, identity: str) -> bool:
        return bool(self.storage.existing([self.rows_name(identity)]))

    def rows(self, identity: str) -> Entry | None:
        """What there is of them; None: nothing."""
        entries = (entry for entry in self.storage.entries(identity) if entry.name == _ROWS)
        return next(entries, None)

    def abort(self, identity: str) -> None:
        """Remove a transaction that is not decided. Whoever still writes its rows fails."""
        self.storage.remove(identity)

    def remove_rows(self, identity: str) -> None:
        self.storage.delete([self.rows_name(identity)])
        self.storage.sync(identity)

    def read(self, identity: str, rows_per_chunk: int, first: int) -> Iterator[tuple[int, Any]]:
        """The chunks from number ``first`` on, each a record batch; the same number is always the
        same rows.

        Raises:
            FileNotFoundError: the rows are gone.
            HeuristicOutcome: the file is damaged.
        """
        import pyarrow as pa

        with self.storage.reader(self.rows_name(identity)) as file:
            try:
                with pa.ipc.open_stream(file) as stream:
                    yield from chunks(stream, rows_per_chunk, first)
            except pa.ArrowInvalid as error:
                raise HeuristicOutcome(
                    "WRITE_AHEAD_LOST",
                    f"{self.rows_path(identity)} is damaged ({error}), and the rows in it are "
                    f"decided: their chunks from number {first} on ({rows_per_chunk} rows each) "
                    "may not have been sent. docs/guarantees.md says how to go on.",
                ) from error

    # ---- progress ----------------------------------------------------------------------------

    def is_decided(self, identity: str) -> bool:
        return bool(self.storage.existing([f"{identity}/{_DECIDED}"]))

    def begin_sending(self, identities: Sequence[str]) -> None:
        """Note that they are decided."""
        for identity in identities:
            if not self.is_decided(identity):
                self.storage.put(f"{identity}/{_DECIDED}", b"")

    def acknowledged(self, identity: str) -> int:
        """How many chunks are acknowledged, from the first one on."""
        # Runs send in order, each from where the last one stood, so the highest number says it for
        # all before.
        return max((number + 1 for number in self._acked(identity)), default=0)

    def acknowledge(self, identity: str, number: int) -> None:
        """Chunk ``number`` is acknowledged, durably."""
        self.storage.put(f"{identity}/acked-{number:010d}", b"")
        lower = [acked for acked in self._acked(identity) if acked < number]
        self.storage.delete([f"{identity}/acked-{acked:010d}" for acked in lower])

    def is_marked(self, batch_id: int) -> bool:
        """Whether all that was decided up to ``batch_id`` is known to be sent."""
        return any(any(b >= batch_id for b in self._marks()) for _ in range(LOOKS))

    def mark(self, batch_id: int) -> None:
        """All decided transactions up to ``batch_id`` are sent: note it, then forget the
        details.
        """
        before = self._marks()
        self.storage.put(f"sent-{batch_id:020d}", b"")
        with_rows = set(map(str, self.transactions()))
        for name in filter(None, map(self.scope.find, self.storage.names())):
            if name.batch_id <= batch_id and str(name) not in with_rows:
                self.storage.remove(str(name))
        # The highest one of before stays for now: a listing that runs at this moment sees it.
        self.storage.delete([f"sent-{old:020d}" for old in before if old < max(before)])

    # ---- claims ------------------------------------------------------------------------------

    def claim(self, identity: str, run: str) -> int:
        """Take the sending over from every run that claimed it before; returns the number of the
        claim, from 1.
        """
        number = 1
        while not self.storage.create_if_absent(f"{identity}/claim-{number}", run.encode()):
            number += 1
        return number

    def is_taken_over(self, identity: str, claim: int) -> bool:
        """Whether a later claim than ``claim`` (0: the run that decided) is there."""
        return bool(self.storage.existing([f"{identity}/claim-{claim + 1}"]))

    def _acked(self, identity: str) -> list[int]:
        return _numbers(_ACKED, self.storage.names(identity))

    def _marks(self) -> list[int]:
        return _numbers(_MARK, self.storage.names())


def _numbers(kind: re.Pattern[str], names: Sequence[str]) -> list[int]:
    return [int(match[1]) for match in map(kind.fullmatch, names) if match]
