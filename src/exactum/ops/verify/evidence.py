"""What verifying finds of one epoch in one sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from exactum.ops.render import ExitStatus


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


def status_of_evidence(evidence: Iterable[Evidence]) -> ExitStatus:
    """CANNOT_TELL also where there was nothing to look at."""
    findings = {each.finding for each in evidence}
    if findings & {Finding.MISSING, Finding.EXTRA, Finding.DIFFERENT, Finding.IN_DOUBT}:
        return ExitStatus.NEEDS_PERSON
    return ExitStatus.FINE if findings == {Finding.EXACT} else ExitStatus.CANNOT_TELL
