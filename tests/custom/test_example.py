"""The worked example of the documentation keeps the contract that it is an example of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from two_phase_commit_sink import JsonFolderSink

from exactum.protocol.sink import Sink
from exactum.testing import SinkContract, check_two_phase_commit_sink
from tests.kit.custom.custom_rows import batches, empty, published

pytestmark = pytest.mark.slow


@pytest.mark.sweep
class TestJsonFolderSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, folder: Path) -> None:
        self.folder = folder

    def make_sink(self) -> Sink:
        return JsonFolderSink(self.folder)

    def visible_rows(self) -> Iterable[object]:
        return published(self.folder)

    def batches(self) -> Sequence[Any]:
        return batches()

    def reset(self) -> None:
        empty(self.folder)

    def leftovers(self) -> Sequence[object]:
        return list(self.folder.glob(".temporary/*"))


@pytest.mark.sweep
def test_it_is_crashed_at_every_call(folder: Path) -> None:
    """One line does it, for any user's class."""
    runs = check_two_phase_commit_sink(
        lambda: JsonFolderSink(folder),
        lambda: published(folder),
        batches,
        reset=lambda: empty(folder),
    )
    assert runs > 300, runs
