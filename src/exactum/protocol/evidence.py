"""What the records promise of an epoch, and what verifying finds of it in one sink."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exactum.protocol.model import DecisionRecord, PreparedTransaction


@dataclass(frozen=True)
class Promise:
    """One decided epoch: the record in force, and transactions of records that it supersedes, which
    must not be visible.
    """

    record: DecisionRecord
    superseded: tuple[PreparedTransaction, ...] = ()

    @property
    def batch_id(self) -> int:
        return self.record.epoch.batch_id

    def rows(self, participant: str) -> int:
        return sum(p.rows for p in self.record.of(participant))


class Finding(Enum):
    """How the rows in a target compare with what the record promises."""

    EXACT = "exact"
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"  # as many as promised, and others
    IN_DOUBT = "in doubt"  # decided, and not visible yet: finishing it makes it so
    UNKNOWABLE = "unknowable"


@dataclass(frozen=True)
class Evidence:
    """``promised`` and ``found`` are rows; ``found`` is None where nobody can count them.

    ``by`` says by what it is known (log, rows, ledger, files), ``why`` what a person has to know of
    it, empty for a plain EXACT.
    """

    batch_id: int
    sink: str
    promised: int
    found: int | None
    finding: Finding
    by: str
    why: str = ""

    @property
    def text(self) -> str:
        """``exact``, ``missing 3``, ``extra 2``, ``in doubt``, ``unknowable``."""
        if self.found is not None and self.finding in (Finding.MISSING, Finding.EXTRA):
            return f"{self.finding.value} {abs(self.found - self.promised):,}"
        return self.finding.value


def compared(
    batch_id: int, sink: str, promised: int, found: int, *, by: str, why: str = ""
) -> Evidence:
    """EXACT, MISSING or EXTRA, by the numbers."""
    finding = (
        Finding.EXACT
        if found == promised
        else Finding.MISSING
        if found < promised
        else Finding.EXTRA
    )
    return Evidence(batch_id, sink, promised, found, finding, by, why)


NOT_COUNTED = "a target of your own: nobody but you can count its rows"


def unknowable(promise: Promise, sink: str, why: str = NOT_COUNTED) -> Evidence:
    """Nobody can count its rows."""
    rows = promise.rows(sink)
    return Evidence(promise.batch_id, sink, rows, None, Finding.UNKNOWABLE, "nothing", why)
