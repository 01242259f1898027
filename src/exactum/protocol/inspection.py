"""The inspection port: what an operator asks of a sink's target. Looking changes nothing there: no
table is made, nothing is tried out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, runtime_checkable

from exactum.problem import Problem
from exactum.protocol.model import DecisionRecord, Incarnation, PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.storage.storage import Storage

# ---- what verifying finds --------------------------------------------------------------------


@dataclass(frozen=True)
class Promise:
    """One decided epoch: the record in force, and transactions of records that it supersedes. These
    must not be visible, but of a sink that it does not name any more: there the rest was given up.
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


# ---- transactions ----------------------------------------------------------------------------


class TransactionState(Enum):
    """Where a transaction stands, as its target tells."""

    OPEN = "open"  # being written, or prepared: the target makes no difference
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    GONE = "gone"  # the target knows nothing of it, so nobody made it visible by this name
    UNKNOWN = "unknown"  # the target cannot tell

    @property
    def unsettled(self) -> bool:
        """It waits for somebody to end it."""
        return self in (TransactionState.OPEN, TransactionState.PREPARED)


@dataclass(frozen=True)
class TransactionView:
    """One transaction as its target shows it. None stands for what the target does not tell.

    ``query_id`` and ``participant`` are None where its name is not one of exactum's. ``began_ms``
    is since 1970, by the target's clock; ``timeout_ms`` is None for one that never times out.
    ``details`` are further facts, one in each text: partitions and offsets, files, who owns it.
    """

    participant: str | None
    identity: str
    query_id: str | None
    incarnation: Incarnation | None
    state: TransactionState
    began_ms: int | None = None
    timeout_ms: int | None = None
    batch_id: int | None = None
    attempt: int | None = None
    rows: int | None = None
    details: tuple[str, ...] = ()

    def age_ms(self, now_ms: int) -> int | None:
        """How long ago it began, by a clock that may be another one than the target's."""
        return None if self.began_ms is None else max(0, now_ms - self.began_ms)

    def left_ms(self, now_ms: int) -> int | None:
        """Until the target aborts it by itself; None: it does not, or does not tell when."""
        age_ms = self.age_ms(now_ms)
        return None if age_ms is None or self.timeout_ms is None else self.timeout_ms - age_ms

    def of_record(
        self, prepared: PreparedTransaction, batch_id: int, attempt: int
    ) -> TransactionView:
        """The same, with what its decision record knows of it."""
        return replace(self, batch_id=batch_id, attempt=attempt, rows=prepared.rows)


class Inspector(ABC):
    """One sink of one query, for an operator; each inherits this. Used by one thread."""

    @property
    def name(self) -> str:
        """Its participant's."""
        return self.participant().name

    @abstractmethod
    def list_open(self) -> Sequence[TransactionView]:
        """What is open or prepared under this query's and this participant's name, of any
        incarnation.

        Raises:
            Unavailable: the target did not answer.
            SettingRefused: the user may not ask.
        """

    @abstractmethod
    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """Where each of these stands now, in the same order, with details. They are all that one
        record names of this participant, or some of them.

        Raises:
            Unavailable, SettingRefused: as ``list_open``.
        """

    @abstractmethod
    def participant(self) -> Participant:
        """What commits and aborts them, made without the checks of a start. Closed with this."""

    def close(self) -> None:
        """Let go of connections. Leaves every open transaction as it is."""
        self.participant().close()

    def refuse_other(self, trace: Mapping[str, str]) -> None:
        """Another target knows nothing of them, which reads as 'none is open'. ``trace``: as in
        ``OpenSink``, of the last run. Default: nobody can tell.

        Raises:
            CheckpointRefused: it is another one.
            ExactumError: it does not answer.
        """
        return

    def evidence(
        self, promises: Sequence[Promise], onwards: Callable[[], Sequence[Promise]]
    ) -> Sequence[Evidence]:
        """What the target has of each of these, counted by other code than wrote it. ``onwards``
        reads what is promised from the first of these on, as of now. Default: nobody can count.

        Raises:
            ExactumError: as ``list_open``.
            OSError, ValueError: a file could not be read, or is damaged.
        """
        return [unknowable(each, self.name) for each in promises]


@runtime_checkable
class Inspectable(Protocol):
    """A sink that an operator's commands can look into; all of exactum's own are."""

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """Connect, and check nothing but that. ``staging``: as in ``QueryRun``.

        Raises:
            SettingRefused: the target refused the credentials.
            Unavailable: it did not answer.
        """


@runtime_checkable
class Provable(Protocol):
    """A sink that can be tried out before its first start; all of exactum's own can."""

    @property
    def waits_in_staging(self) -> bool:
        """Whether its rows wait in the query's staging until they are decided."""

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """What would stop a start, found by doing what a start does and taking it back; and what a
        start does not look at, and may lose rows or time later. ``longest_outage_s``: how long the
        query may be down; None: not said.

        Raises:
            ExactumError: the next thing that stops a start. What was found before counts.
        """
