"""The outermost half of every sink whose rows wait as files: what it says of itself, how its two
halves are put together for a run, and what an operator's commands see of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from exactum.errors import SettingRefused
from exactum.problem import Problem, ok
from exactum.protocol.inspection import Evidence, Promise, unknowable
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import (
    DEAD_LETTER_COLUMNS,
    Guarantee,
    NotAFunction,
    OpenSink,
    QueryRun,
    Scope,
)
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.staged import StagedParticipant, StagedTarget
from exactum.sinks.staging import Staging, reach_staged
from exactum.sinks.writer import StagedWriters, TaskRows
from exactum.storage.storage import Storage


class StagedSink(NotAFunction, ABC):
    """What each staged sink inherits; see the ports ``Sink``, ``Inspectable`` and ``Provable``. It
    writes ``target_of``, ``open`` and what it can say better than here.
    """

    name: str
    rows: Callable[[Any], Any] | None = None
    dead_letter_columns: Sequence[tuple[str, str]] = DEAD_LETTER_COLUMNS
    waits_in_staging = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port ``Sink``. Default: all are welcome."""

    @abstractmethod
    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port ``Sink``. Opens the staging of its target, makes and tries out what else it
        needs, and ends with ``open_with``.
        """

    @abstractmethod
    def target_of(self, run: QueryRun, participant: str) -> StagedTarget:
        """The target as it is found: for who only looks nothing is made, and nothing tried out."""

    def evidence_of(
        self, inspector: StagedInspector, promises: Sequence[Promise]
    ) -> Sequence[Evidence]:
        """See ``Inspector.evidence``. Default: nobody but the user can count."""
        return [unknowable(each, inspector.name) for each in promises]

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``Provable``. Default: nothing is tried."""
        yield ok(self.name, "Its target was not tried: only its own code knows it.")

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> StagedInspector:
        """See ``Inspectable``."""
        run = QueryRun(query_id, new_incarnation(), Guarantee.EXACTLY_ONCE, staging)
        return StagedInspector(self.target_of(run, participant), self.evidence_of)

    def staging_of(self, run: QueryRun, participant: str) -> Staging:
        """Where its rows wait in the query's staging.

        Raises:
            SettingRefused: the run has none.
        """
        if run.staging is None:
            raise SettingRefused(
                "STAGING_WANTED",
                f"{self!r}: its rows wait in files until their epoch is decided, and the "
                "checkpoint lies where exactum keeps none.\nGive staging= a folder or a prefix in "
                "an object store that the driver and all executors share (stores need "
                "exactum[objects]). Nothing was written.",
            )
        return Staging(run.staging, Scope(run.query_id, participant))

    def open_with(
        self,
        run: QueryRun,
        target: StagedTarget,
        rows: Callable[[Any], TaskRows],
        plan: Any = None,
        facts: Mapping[str, Any] | None = None,
    ) -> OpenSink:
        """Both halves. ``rows``, ``plan`` and ``facts`` are those of ``StagedWriters``."""
        return OpenSink(
            StagedParticipant(target),
            StagedWriters(target.staging, rows, plan, target.at, facts or {}),
            trace=target.staging.trace,
            reach=reach_staged(run),
        )
