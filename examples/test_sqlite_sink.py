"""The contract, played against the sink of ``sqlite_sink.py``: run it with pytest."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest
from sqlite_sink import TABLES, SqliteSink, connected

from exactum.testing import SinkContract


class TestSqliteSink(SinkContract):
    numbers = itertools.count()

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.path = str(tmp_path / "target.db")

    def make_sink(self):
        return SqliteSink(self.path)

    def visible_rows(self):
        database = connected(self.path)
        database.executescript(TABLES)
        found = database.execute("SELECT row FROM target")
        return [tuple(json.loads(text).values()) for (text,) in found]

    def reset(self):  # hundreds of scenarios would make visible_rows long
        connected(self.path).executescript(TABLES + "DELETE FROM target; DELETE FROM marker;")

    def batches(self):
        return [pa.record_batch({"v": [next(self.numbers) for _ in range(3)]}) for _ in range(6)]
