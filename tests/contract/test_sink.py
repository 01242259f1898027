"""The contract of every sink, kept by each kind of target."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink, Writer
from exactum.testing import SinkContract, TwoPhaseCommitContract
from tests.contract.targets import TARGETS, Target, over
from tests.kit.sql.sql_epochs import narrow

_numbers = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_own = metafunc.cls is TestTwoPhase
    kinds = [kind for kind in TARGETS if (kind == "two-phase") is is_own]
    metafunc.parametrize("target", over(*kinds, test=metafunc.function.__name__), indirect=True)


class OverTarget:
    """The hooks of the contracts."""

    visible_within_s = 60.0  # a busy machine's broker

    @pytest.fixture(autouse=True)
    def _over(self, target: Target) -> None:
        self.target = target
        self.columns = target.columns
        self.stalls_in_tasks = target.stalls_in_tasks

    def make_sink(self) -> Sink:
        return self.target.sink()

    def visible_rows(self) -> Iterable[object]:
        return self.target.rows()

    def batches(self) -> Sequence[Any]:
        """Of rows that no other call has."""
        numbers = [[next(_numbers) for _ in range(3)] for _ in range(8)]
        self._given = [narrow([(n, f"it's {n}\n") for n in some]) for some in numbers]
        return [self.target.frame(batch) for batch in self._given]

    def rows_in(self, batch: Any) -> list[object]:
        plain = next(own for own in self._given if self.target.frame(own).equals(batch))
        return [tuple(row.values()) for row in plain.to_pylist()]

    def reset(self) -> None:
        self.target.reset()

    def leftovers(self) -> Sequence[object]:
        return self.target.leftovers()

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        self.target.lose(participant, prepared)

    def staging_folder(self) -> str:
        return str(self.target.staging)

    def kill_task(self, writer: Writer) -> None:
        self.target.kill_task(writer)


@pytest.mark.sweep
class TestSink(OverTarget, SinkContract):
    pass


@pytest.mark.sweep
class TestTwoPhase(OverTarget, TwoPhaseCommitContract):
    pass
