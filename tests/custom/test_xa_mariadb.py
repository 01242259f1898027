"""examples/xa_sink.py: the contract of a two-phase sink, on a real server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
import xa_sink
from pyspark.sql import SparkSession
from xa_sink import TABLES, XaSink

from exactum.errors import EpochAborted, Unavailable
from exactum.testing import TwoPhaseCommitContract
from exactum.testing.faults import EVERY_VARIABLE
from tests.kit.docs.program import on_its_way
from tests.kit.errors import raised
from tests.kit.opened_sink import OpenedSink
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.waiting import await_true

pytestmark = pytest.mark.mariadb

_numbers = itertools.count()


class Table:
    """A table of its own, of the name ``name``."""

    def __init__(self, mariadb: LocalMariaDB) -> None:
        self.mariadb = mariadb
        self.name = f"xa_{next(_numbers)}"
        self.first = 0
        for statement in TABLES:
            mariadb.ask(statement.format(self.name))

    def sink(self) -> XaSink:
        return XaSink(self.mariadb.url, self.name)

    def rows(self) -> list[tuple[Any, ...]]:
        return self.mariadb.ask(f"SELECT * FROM {self.name} WHERE number >= {self.first}")


@pytest.fixture
def table(mariadb: LocalMariaDB) -> Table:
    return Table(mariadb)


def batch_of(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"number": [*numbers], "at": [f"it's {n}" for n in numbers]})


@pytest.mark.sweep
class TestXaSink(TwoPhaseCommitContract):
    """Where not every call is played, a few are."""

    @pytest.fixture(autouse=True)
    def _few_calls(self, mariadb: LocalMariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table = Table(mariadb)
        if every := os.environ.get(EVERY_VARIABLE):
            monkeypatch.setenv(EVERY_VARIABLE, str(5 * int(every)))

    def reset(self) -> None:
        """What dead drivers have left open locks their rows: those of former scenarios stay."""
        self.table.first = next(_numbers)

    def make_sink(self) -> XaSink:
        return self.table.sink()

    def visible_rows(self) -> Iterable[object]:
        return self.table.rows()

    def batches(self) -> Sequence[Any]:
        return [batch_of(*(next(_numbers) for _ in range(3))) for _ in range(6)]


def test_a_session_that_still_holds_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server then says of what is prepared that it does not know it: nobody calls that lost, and
    it is committed once the session is gone.
    """
    monkeypatch.setattr(xa_sink, "PAUSE_S", 0.01)
    with OpenedSink(table.sink()) as one:
        with monkeypatch.context() as patched:
            patched.setattr(XaSink, "close", lambda self: None)
            writer = one.writer()
            writer.write(batch_of(1))
            held = writer._sink()._session
            prepared = writer.prepare()
        permit = one.permit(one.participant.verify([prepared]))
        with raised(Unavailable, "", "still connected"):
            one.commit(permit)
        assert table.rows() == []
        held.close()
        assert one.commit(permit).committed == permit.record.prepared
    assert table.rows() == [(1, "it's 1")]


@pytest.mark.parametrize("after", ["begin", "rows"])
def test_a_task_that_loses_its_session(table: Table, after: str) -> None:
    """What it would write in another session is visible at once: it fails instead."""
    with OpenedSink(table.sink()) as one:
        writer = one.writer()
        writer.write(batch_of(1))
        table.mariadb.ask(f"KILL {writer._sink()._session.thread_id()}")
        with pytest.raises(pymysql.err.Error):
            writer.write(batch_of(2)) if after == "begin" else writer.prepare()
        writer.abort()
        assert not one.participant.list_open()
    assert table.rows() == []


def test_a_transaction_that_somebody_undid(table: Table) -> None:
    """Before the decision it is found, and after it, it is told."""
    with OpenedSink(table.sink()) as one:
        permit = one.decide(batch_of(1))
        one.sweep()
        with pytest.raises(EpochAborted):
            one.participant.verify(permit.record.prepared)
        assert one.commit(permit).expired == permit.record.prepared
    assert table.rows() == []


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.usefixtures("settings_put_back")
def test_the_program(spark: SparkSession, mariadb: LocalMariaDB, tmp_path: Path) -> None:
    """Each number is there once, also after a crash behind a decision."""
    table, checkpoint = Table(mariadb), tmp_path / "checkpoint"
    arguments = mariadb.url, "--table", table.name, "--checkpoint", str(checkpoint)
    for _ in range(2):
        wanted = len(table.rows()) + 100
        with on_its_way(spark, xa_sink, *arguments):
            await_true(lambda wanted=wanted: len(table.rows()) >= wanted, "numbers come")
        forget_last_batch(checkpoint)
    found = sorted(number for number, _ in table.rows())
    assert found == list(range(len(found)))
    assert mariadb.ask("XA RECOVER") == []
