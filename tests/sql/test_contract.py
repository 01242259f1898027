"""The SQL sinks keep the contract of every sink: each dialect, in each mode."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink, Writer
from exactum.testing import SinkContract
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.staged_files import waiting

_numbers = itertools.count()


@pytest.mark.sweep
class SqlContract(SinkContract):
    """The sweeps take minutes here and are for ``make deep``; test_epochs has some of its own."""

    options: dict[str, Any]
    columns = (("v", "bigint"), ("s", "string"))
    table = "v bigint NOT NULL, s varchar(40)"
    stalls_in_tasks = False

    @pytest.fixture(autouse=True)
    def target(self, database: SqlDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        # A stalled driver's locks end when the server ends its transaction; here soon.
        database.end_idle_soon(monkeypatch)
        self.database = database
        self.name = database.table(self.table)

    def make_sink(self) -> Sink:
        return self.database.sink(self.name, **self.options)

    def visible_rows(self) -> list[object]:
        return list(self.database.rows(f"SELECT v, s FROM {self.name}"))

    def batches(self) -> Sequence[Any]:
        def batch() -> Any:
            values = [next(_numbers) for _ in range(3)]
            return pa.record_batch(
                [pa.array(values), pa.array([f"it's {v}\n" for v in values])], ["v", "s"]
            )

        return [batch() for _ in range(8)]

    def reset(self) -> None:
        self.database.run(f"DELETE FROM {self.name}")
        shutil.rmtree(self.staging_folder(), ignore_errors=True)

    def leftovers(self) -> Sequence[object]:
        return waiting(Path(self.staging_folder()))

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        """Somebody removes staged files."""
        for transaction in prepared:
            (path,) = Path(self.staging_folder()).glob(f"*/{transaction.identity}.0.staged")
            path.unlink()

    def kill_task(self, writer: Writer) -> None:
        """The system closes a dead process's connections; that is all that ``abort`` does here."""
        writer.abort()

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_the_driver(self) -> None:
        super().test_every_fault_at_every_call_of_the_driver()

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_a_recovery(self) -> None:
        super().test_every_fault_at_every_call_of_a_recovery()

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_a_task(self) -> None:
        super().test_every_fault_at_every_call_of_a_task()

    @pytest.mark.deep
    def test_a_task_may_die_at_every_call_and_is_tried_again(self) -> None:
        super().test_a_task_may_die_at_every_call_and_is_tried_again()

    @pytest.mark.deep
    def test_two_drivers_at_once(self) -> None:
        super().test_two_drivers_at_once()


class TestAppend(SqlContract):
    options = {}  # noqa: RUF012


class TestUpsert(SqlContract):
    options = {"mode": "upsert", "key": "v"}  # noqa: RUF012
    table = "v bigint PRIMARY KEY, s varchar(40)"
