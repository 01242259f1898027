"""The in-memory decision log keeps the contract that every log keeps."""

from __future__ import annotations

import pytest

from exactum.protocol.decision_log import DecisionLog
from exactum.testing import LogContract, MemoryDecisionLog, MemoryStorage


class TestMemoryDecisionLog(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.storage = MemoryStorage()

    def open_log(self, query_id: str) -> DecisionLog:
        return MemoryDecisionLog(self.storage, query_id)
