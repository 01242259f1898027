"""Each way to break a sink is found by its contract. (That sound ones keep it: tests/contract.)"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from two_phase_commit_sink import JsonFolderSink, sync

from exactum import TransactionName, TransactionScope
from exactum.errors import HeuristicOutcome
from exactum.protocol.sink import Sink
from exactum.testing import SinkContract, TwoPhaseCommitContract
from tests.contract.targets import TwoPhase
from tests.contract.test_sink import OverTarget

pytestmark = pytest.mark.slow


class ShowsAtPreCommit(JsonFolderSink):
    def pre_commit(self, transaction: str) -> None:
        super().pre_commit(transaction)
        self.commit(transaction)


class ListsAll(JsonFolderSink):
    """Takes names of other sinks and queries for its own, by saying that they are."""

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, str]]:
        for path in self.temporary.iterdir():
            name = path.name.removesuffix(".jsonl")
            yield re.sub(r"^exactum\.\w+\.", scope.prefix, name), name


class ListsItsOwnOnly(JsonFolderSink):
    """Not those of former runs."""

    def connect(self) -> None:
        super().connect()
        self.former = {path.name for path in self.temporary.iterdir()}

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, str]]:
        found = super().list_transactions(scope)
        return [(name, own) for name, own in found if f"{name}.jsonl" not in self.former]


class ListsNothing(JsonFolderSink):
    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, str]]:
        return ()


class CommitsHalf(JsonFolderSink):
    def commit(self, transaction: str) -> None:
        if self._staged(transaction).exists():
            lines = self._staged(transaction).read_text().splitlines(keepends=True)
            self._staged(transaction).write_text("".join(lines[1:]))
        super().commit(transaction)


class CopiesAtCommit(JsonFolderSink):
    """Not idempotent after a crash in the middle: append, then remove."""

    def commit(self, transaction: str) -> None:
        if self._staged(transaction).exists():
            with (self.folder / "all.jsonl").open("a") as file:
                file.write(self._staged(transaction).read_text())
            self._remove(transaction)
        sync(self.folder)

    def _remove(self, transaction: str) -> None:
        """Forgets to."""


class RepeatsFail(JsonFolderSink):
    """Forgets what it has committed."""

    def commit(self, transaction: str) -> None:
        self._staged(transaction).rename(self._published(transaction))


class HidesLoss(JsonFolderSink):
    def commit(self, transaction: str) -> None:
        if self._staged(transaction).exists():
            super().commit(transaction)


class AbortMustFind(JsonFolderSink):
    def abort(self, transaction: str) -> None:
        if not self._staged(transaction).exists():
            raise HeuristicOutcome(f"{transaction} is not there")
        super().abort(transaction)


class AbortsCommitted(JsonFolderSink):
    def abort(self, transaction: str) -> None:
        super().abort(transaction)
        self._published(transaction).unlink(missing_ok=True)


class CloseAborts(JsonFolderSink):
    def close(self) -> None:
        for path in self.temporary.iterdir():
            path.unlink()


class BackToLife(JsonFolderSink):
    """What was aborted is written, and published, all the same."""

    def commit(self, transaction: str) -> None:
        if not self._published(transaction).exists():
            self._published(transaction).write_text('{"n": 0, "text": "row 0/0"}\n')
        self.abort(transaction)


class KeepsInMemory(JsonFolderSink):
    """Writes at commit what only the task's own copy knows."""

    kept: list[Any]

    def begin_transaction(self, name: TransactionName) -> str:
        self.kept = []
        return super().begin_transaction(name)

    def invoke(self, transaction: str, batch: Any) -> None:
        self.kept = [*self.kept, batch]

    def commit(self, transaction: str) -> None:
        for batch in getattr(self, "kept", []):
            super().invoke(transaction, batch)
        super().commit(transaction)


class CommitsInTwoSteps(JsonFolderSink):
    """Removes before it shows: dies between two of its own methods."""

    def commit(self, transaction: str) -> None:
        if self._staged(transaction).exists():
            text = self._staged(transaction).read_text()
            self.abort(transaction)
            self._published(transaction).write_text(text)
        super().commit(transaction)


BROKEN = [
    ShowsAtPreCommit,
    ListsAll,
    ListsItsOwnOnly,
    ListsNothing,
    CommitsHalf,
    CopiesAtCommit,
    RepeatsFail,
    HidesLoss,
    AbortMustFind,
    AbortsCommitted,
    CloseAborts,
    BackToLife,
    KeepsInMemory,
]


def contract(of: type[SinkContract], broken: type[JsonFolderSink], folder: Path) -> Any:
    class Broken(TwoPhase):
        def sink(self) -> Sink:
            return broken(folder)

    class Over(OverTarget, of):  # type: ignore[misc, valid-type]
        visible_within_s = 0.0
        columns = Broken.columns
        target = Broken(folder)

    return Over()


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_sink_is_found(memory: Path, broken: type[JsonFolderSink]) -> None:
    """Each way to break the port fails a test of the contract of every sink."""
    over = contract(SinkContract, broken, memory)
    tests = [name for name in dir(over) if name.startswith("test_")]
    for test in sorted(tests, key=lambda name: "every" in name or "two_drivers" in name):
        try:
            getattr(over, test)()
        except Exception as error:
            print(test, type(error).__name__, str(error)[:200])
            return
    pytest.fail("no test fails")


def test_a_crash_within_a_method_is_played(memory: Path) -> None:
    """What the contract of every sink does not reach."""
    over = contract(TwoPhaseCommitContract, CommitsInTwoSteps, memory)
    with pytest.raises(AssertionError, match="CRASH_AFTER.* at abort"):
        over.test_every_fault_at_every_call_of_a_method()
