"""examples/: each program keeps its promise. Most are run, left as by a crash after the decision,
and run again, on the servers and in the session that the tests share.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sqlite3
import tempfile
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path

import classic_job
import numbers_api
import pyarrow as pa
import pytest
import savepoint_and_rescale
import sqlite_sink
import tour_servers
import two_phase_commit_sink
import write_ahead_sink
from pyspark.sql import SparkSession
from test_sqlite_sink import TestSqliteSink as ContractOfSqliteSink

from exactum.local import LocalKafka
from exactum.protocol.inspection import Finding, Promise, TransactionState
from exactum.storage.folder import Folder
from exactum.testing.faults import EVERY_VARIABLE
from tests.conftest import TopicFactory
from tests.kit.docs.program import call, on_its_way
from tests.kit.environment import ROOT
from tests.kit.kafka.transactions import keys_and_values
from tests.kit.opened_sink import QUERY, OpenedSink
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.serving import serving
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.spark.query import Query
from tests.kit.spark.torn_stream import of_format_2
from tests.kit.transactions.operator import typed
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("settings_put_back")]


@pytest.mark.sweep
class TestSqliteSink(ContractOfSqliteSink):
    """Where not every call is played, a few are: ``tests/contract`` plays what staged sinks share."""

    @pytest.fixture(autouse=True)
    def few_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if every := os.environ.get(EVERY_VARIABLE):
            monkeypatch.setenv(EVERY_VARIABLE, str(5 * int(every)))


NOTEBOOK = ROOT / "examples" / "notebooks" / "exactly-once.ipynb"
OWN_BROKER = "kafka = LocalKafka()\n"
"""The line of its first code cell in whose place the tests' broker is given."""
ORDERS = tour_servers.orders(100)
_numbers = itertools.count(1)


def totals_of(orders: list[tuple[str, str]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for customer, amount in orders:
        found[customer] += int(amount)
    return dict(found)


@pytest.mark.deep  # Python workers with pandas: as much as the four others together
def test_the_classic_job(
    kafka: LocalKafka, mariadb: LocalMariaDB, topic: TopicFactory, tmp_path: Path
) -> None:
    """The map throws in the second micro-batch: no word is lost or doubled, and each has the one
    before it. This session tries the failed task again; tests/crash has the query that stops.
    """
    words, table = tour_servers.words(60, throws_at=47), f"words_{next(_numbers)}"
    source = topic("words", partitions=1)
    tour_servers.send(kafka.bootstrap_servers, source, words)
    tour_servers.make_words_table(mariadb, table)
    arguments = [
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topic", source),
        *("--database", mariadb.url, "--table", table),
        *("--checkpoint", str(tmp_path / "words")),
    ]
    for _ in range(2):
        call(classic_job, *arguments)
        forget_last_batch(tmp_path / "words")
    assert (tmp_path / "words.thrown").exists()
    previous: dict[str, str] = defaultdict(str)
    expected = []
    for key, word in words:
        expected.append((key, previous[key] + word.upper()))
        previous[key] = word.upper()
    assert sorted(mariadb.ask(f"SELECT k, v FROM {table}")) == sorted(expected)


def test_a_two_phase_sink(spark: SparkSession, tmp_path: Path) -> None:
    """Each number is in the folder once, and nothing is left in the temporary one."""
    folder, checkpoint = tmp_path / "numbers", tmp_path / "checkpoint"

    def published() -> list[int]:
        lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["number"] for line in lines)

    for _ in range(2):
        wanted = len(published()) + 100
        with on_its_way(spark, two_phase_commit_sink, str(folder), "--checkpoint", str(checkpoint)):
            await_true(lambda wanted=wanted: len(published()) >= wanted, "numbers come")
        forget_last_batch(checkpoint)
    assert published() == list(range(len(published())))
    assert list((folder / ".temporary").iterdir()) == []


@pytest.mark.deep  # tests/custom kills such a sink at every call
def test_a_write_ahead_sink(spark: SparkSession, tmp_path: Path) -> None:
    """Replies are lost, so requests come twice; each number counts once, and they come in order."""
    with serving(numbers_api.NumbersServer(0)) as api:
        url, checkpoint = f"http://127.0.0.1:{api.server_port}/", tmp_path / "checkpoint"
        for life in (1, 2):
            with on_its_way(spark, write_ahead_sink, url, "--checkpoint", str(checkpoint)):
                await_true(lambda wanted=life * 4: api.requests >= wanted, "requests come")
            forget_last_batch(checkpoint)
        with urllib.request.urlopen(url, timeout=WAIT_MAX_S) as reply:
            said = json.load(reply)
    assert said["came twice"] == said["requests"] // numbers_api.LOSES_EVERY > 0
    assert said["numbers"] == said["different"]
    assert sorted(api.numbers) == list(range(said["numbers"]))


@pytest.mark.deep
def test_savepoint_and_rescale(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: TopicFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From two partitions of state to five, on the way a savepoint: each total goes on from where
    it was, and none is written twice.
    """
    source, totals = topic("orders", partitions=1), topic("totals", partitions=1)
    old, moved = (str(tmp_path / name) for name in ("totals", "totals-5"))
    program = savepoint_and_rescale
    arguments = [
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topic", source, "--totals", totals)
    ]

    def written() -> dict[str, list[int]]:
        found = defaultdict(list)
        for key, value in keys_and_values(kafka.bootstrap_servers, totals):
            found[key.decode()].append(int(value))
        return found

    def last_are(orders: list[tuple[str, str]]) -> bool:
        return {key: values[-1] for key, values in written().items()} == totals_of(orders)

    tour_servers.send(kafka.bootstrap_servers, source, ORDERS[:60])
    with on_its_way(spark, program, *arguments, "--checkpoint", old):
        await_true(lambda: last_are(ORDERS[:60]), "the totals of the first orders")
        await_true(Path(old, "commits", "0").exists, "Spark has logged them")
        kept = tmp_path / "kept"
        typed("savepoint", "create", "--checkpoint", old, "--to", kept, "--stop", status=0)
        assert spark.streams.active == []
    typed("savepoint", "restore", kept, "--checkpoint", moved, "--as", "same", status=0)
    tour_servers.send(kafka.bootstrap_servers, source, ORDERS[60:])
    call(program, *arguments, "--checkpoint", moved, "--repartition", "5")
    told = capsys.readouterr().out.splitlines()[-1].split()[1:]
    env = {"KAFKA": kafka.bootstrap_servers, "TOTALS": totals}
    typed(*told, "--yes", "--sinks", f"{program.__file__}:sinks", status=0, env=env)
    with on_its_way(spark, program, *arguments, "--checkpoint", moved):
        await_true(lambda: last_are(ORDERS), "the totals of all orders")
    for values in written().values():
        assert values == sorted(set(values)), "orders have amounts above 0: each total is new"
    state = of_format_2(spark).read.format("statestore").load(moved)
    assert max(row.partition_id for row in state.select("partition_id").collect()) == 4


def test_a_staged_sink(spark: SparkSession, tmp_path: Path) -> None:
    """A run, and another one after a death between the sink's commit and Spark's."""
    query, target = Query(spark, tmp_path), tmp_path / "target.db"
    spark.sparkContext.addPyFile(str(sqlite_sink.__file__))
    query.give(*range(100))
    for _ in range(2):
        assert query.run(query.exactly_once(sqlite_sink.SqliteSink(str(target)))) is None
        query.forget_last_commit()
    with sqlite3.connect(target) as database:
        found = [json.loads(text)["v"] for (text,) in database.execute("SELECT row FROM target")]
        assert sorted(found) == list(range(100))
        assert database.execute("SELECT batch FROM marker").fetchall() == [(0,)]


def test_an_operator_looks_into_a_staged_sink(tmp_path: Path) -> None:
    """Before the commit and after it; nobody but the user can count the rows."""
    sink, staging = sqlite_sink.SqliteSink(str(tmp_path / "target.db")), Folder(tmp_path / "waits")
    with (
        OpenedSink(sink, staging=staging) as one,
        contextlib.closing(sink.inspector(QUERY, sink.name, staging)) as inspector,
    ):
        permit = one.decide(pa.record_batch({"v": [1]}))
        prepared = permit.record.prepared
        assert [view.state for view in inspector.list_open()] == [TransactionState.PREPARED]
        one.commit(permit)
        assert [v.state for v in inspector.describe(prepared)] == [TransactionState.COMMITTED]
        found = inspector.evidence([Promise(permit.record)], list)
        assert [each.finding for each in found] == [Finding.UNKNOWABLE]
    assert [problem.where for problem in sink.prove()] == ["sqlite"]


@pytest.mark.deep
@pytest.mark.usefixtures("spark")
def test_the_notebook_prints_what_it_shows(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run from top to bottom, without Jupyter."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert OWN_BROKER in code[0]["source"], "its first code cell starts a broker"
    names: dict[str, object] = {"__name__": "__main__", "kafka": kafka}
    exec("from exactum.local import LocalKafka", names)
    for cell in code:
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec("".join(cell["source"]).replace(OWN_BROKER, ""), names)
        assert said.getvalue().strip() == shown.strip()


def test_the_guide_of_the_examples_names_each_program() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    programs = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert [name for name in programs if f"({name})" not in text and name not in text] == []
