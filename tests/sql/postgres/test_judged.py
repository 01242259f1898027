"""Rows that only the server can judge: the driver finds those that it refuses before the decision,
puts them aside as dead letters under the same record, and never brings them in later.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import OutcomeUnknown, RowsRefused
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation, rows_of
from exactum.protocol.participants import one_after_another
from exactum.protocol.sink import DEAD_LETTERS, Guarantee, QueryRun, WriteOrder
from exactum.spark.run.opened_sinks import judged
from exactum.spark.write.dead_letter import DeadLetterPlan
from exactum.sql.target import REFUSED_MAX
from exactum.testing import MemoryDecisionLog
from exactum.testing.task_job import TaskJob
from tests.kit.errors import raised
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import Task

pytestmark = pytest.mark.postgres

COLUMNS = (("n", "int"), ("v", "string"))
BAD = "no JSON"


def batch_of(texts: dict[int, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(list(texts), pa.int32()), pa.array(list(texts.values()))], names=["n", "v"]
    )


def numbered(count: int, bad: Sequence[int] = (), first: int = 0) -> pa.RecordBatch:
    rows = range(first, first + count)
    return batch_of({n: BAD if n in bad else f'{{"n": {n}}}' for n in rows})


@pytest.fixture
def even(database: Database) -> Iterator[Database]:
    """A domain whose CHECK goes when a test drops it."""
    database.run("DROP DOMAIN IF EXISTS even_length CASCADE")
    database.run("CREATE DOMAIN even_length AS text CONSTRAINT even CHECK (length(VALUE) % 2 = 0)")
    yield database
    database.drop_all()
    database.run("DROP DOMAIN even_length")


class Job:
    """One query into a table and its dead letters, with the driver's step after the write job."""

    def __init__(
        self,
        database: Database,
        table: str,
        tasks: Sequence[Task],
        *,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        with_letters: bool = True,
        **settings: Any,
    ) -> None:
        self._database = database
        self._query = database.query(table)
        self._guarantee = guarantee
        self._sinks = {"rows": database.sink(table, **settings)}
        if with_letters:
            self._sinks[DEAD_LETTERS] = database.sink("dead", create_table=True)
        self.tasks = tasks
        self.after_judging: Callable[[], None] = lambda: None
        self.prepared: list[PreparedTransaction] = []

    def start(self) -> Coordinator:
        query = self._query
        run = QueryRun(query.query_id, new_incarnation(), self._guarantee, query.storage_of_rows)
        columns = {"rows": COLUMNS, DEAD_LETTERS: self._sinks["rows"].dead_letter_columns}
        self._opened = {n: sink.open(run, n, columns[n]) for n, sink in self._sinks.items()}
        self.participants = [sink.participant for sink in self._opened.values()]
        return Coordinator(run, self.participants, MemoryDecisionLog(query.storage, query.query_id))

    def write(self, order: WriteOrder) -> Sequence[PreparedTransaction]:
        found = TaskJob(self._opened["rows"].writers, self.tasks)(order)
        plan = None
        if letters := self._opened.get(DEAD_LETTERS):
            names = tuple(name for name, _ in self._sinks[DEAD_LETTERS].dead_letter_columns)
            plan = DeadLetterPlan(letters.writers, names)
        self.prepared = judged(order, found, self.participants, plan, one_after_another)
        self.after_judging()
        return self.prepared

    def run(self, batch_id: int = 0) -> None:
        driver = self.start()
        try:
            driver.run(batch_id, SourceOffsets(), self.write)
        finally:
            driver.close()

    def letters(self) -> list[dict[str, Any]]:
        rows = self._database.rows("SELECT row_json FROM dead")
        return sorted((json.loads(text) for (text,) in rows), key=lambda row: row["n"])


def numbers_in(database: Database, table: str) -> list[int]:
    return [n for (n,) in database.rows(f"SELECT n FROM {table} ORDER BY n")]


def test_refused_rows_become_dead_letters_of_the_same_record(database: Database) -> None:
    """Wherever they are in files and frames. What is on record, in the ledger and in the tables
    counts each row once.
    """
    table = database.table("n int PRIMARY KEY, v jsonb")
    seed = random.SystemRandom().randrange(2**32)
    bad = set(random.Random(seed).sample(range(900), 40))
    tasks = [
        [numbered(200, bad, 300 * task), numbered(100, bad, 300 * task + 200)] for task in range(3)
    ]
    job = Job(database, table, tasks)
    job.run()
    assert numbers_in(database, table) == sorted(set(range(900)) - bad), seed
    assert [letter["n"] for letter in job.letters()] == sorted(bad)
    assert {letter["v"] for letter in job.letters()} == {BAD}
    assert rows_of(job.prepared) == 900
    assert rows_of([p for p in job.prepared if p.participant == DEAD_LETTERS]) == 40
    assert sorted(n for (n,) in database.rows("SELECT row_count FROM exactum_ledger")) == [40, 860]
    reasons = [e for (e,) in database.rows("SELECT error FROM dead")]
    assert all(
        r.startswith("the row with n=")
        and "PostgreSQL refuses it: invalid input syntax" in r
        and 'column v: "no JSON"' in r
        for r in reasons
    )


@pytest.mark.parametrize("bad", [(), (3,)], ids=["all are taken", "one is refused"])
def test_rows_and_their_ledger_row_are_of_one_transaction(
    database: Database, bad: Sequence[int]
) -> None:
    """'exactum verify' counts the rows that have the ledger row's xmin."""
    table = database.table("n int PRIMARY KEY, v jsonb")
    Job(database, table, [[numbered(9, bad)]]).run()
    of_rows = database.rows(f"SELECT DISTINCT xmin::text FROM {table}")
    assert of_rows == database.rows(
        f"SELECT xmin::text FROM exactum_ledger WHERE row_count = {9 - len(bad)}"
    )


@pytest.mark.parametrize("settings", [{}, {"mode": "upsert", "key": "n"}], ids=["append", "upsert"])
def test_how_many_rows_are_put_aside(database: Database, settings: dict[str, Any]) -> None:
    """A hundred are; one more stops the query, and nothing of the epoch is visible."""
    table = database.table("n int PRIMARY KEY, v jsonb")
    bad = range(0, 3 * REFUSED_MAX, 3)
    job = Job(database, table, [[numbered(500, bad)]], **settings)
    job.run()
    assert len(job.letters()) == len(bad) == 100
    assert len(numbers_in(database, table)) == 400
    job.tasks = [[numbered(500, [*bad, 499], 0)]]
    with raised(RowsRefused, "ROWS_REFUSED", " 101 rows ", "batch 1", "n=0", "no JSON"):
        job.run(1)
    assert len(job.letters()) == 100 and len(numbers_in(database, table)) == 400


def test_all_rows_of_a_file_are_put_aside(database: Database) -> None:
    table = database.table("n int PRIMARY KEY, v jsonb")
    job = Job(database, table, [[numbered(3, range(3))], [numbered(2, (), 3)]])
    job.run()
    job.tasks = [[numbered(2, range(9), 5)]]
    job.run(1)
    assert numbers_in(database, table) == [3, 4]
    assert [letter["n"] for letter in job.letters()] == [0, 1, 2, 5, 6]


def test_without_dead_letters_the_row_is_named(database: Database) -> None:
    """Key, column and value; nothing is visible."""
    table = database.table("n int PRIMARY KEY, v jsonb")
    job = Job(database, table, [[numbered(9, [4])]], with_letters=False)
    with raised(RowsRefused, "ROWS_REFUSED", "n=4:", 'column v: "no JSON"'):
        job.run()
    assert numbers_in(database, table) == []


@pytest.mark.parametrize(
    ("definition", "facts"),
    [
        ("n int PRIMARY KEY, v jsonb", ["(23505)"]),
        ("n int CONSTRAINT below CHECK (n < 5), v jsonb", ['"below"', "(23514)"]),
        ("n int REFERENCES parents DEFERRABLE INITIALLY DEFERRED, v jsonb", ["(23503)"]),
    ],
)
def test_what_a_rule_of_the_table_refuses_stops_the_query(
    database: Database, definition: str, facts: list[str]
) -> None:
    """Others are part of it, so no row is put aside: not even one that could be."""
    database.run("CREATE TABLE parents (n int PRIMARY KEY); INSERT INTO parents VALUES (0)")
    table = database.table(definition)
    job = Job(database, table, [[numbered(7, [1])], [numbered(7)]])
    with raised(RowsRefused, "ROWS_REFUSED", *facts):
        job.run()
    assert numbers_in(database, table) == [] and job.letters() == []


def not_told(*_: object) -> Any:
    raise OutcomeUnknown("the driver dies here")


def test_a_redelivery_leaves_out_what_was_put_aside_and_nothing_else(even: Database) -> None:
    """Decided, and the driver dies. By then the server would take the rows: they are dead letters
    all the same.
    """
    table = even.table("n int PRIMARY KEY, v even_length")
    tasks = [
        [batch_of({0: "ab", 1: "abc", 2: ""}), batch_of({3: "x", 4: "xy"})],
        [batch_of({5: "z"})],
    ]
    job = Job(even, table, tasks)
    driver = job.start()
    for participant in job.participants:
        participant.commit = not_told  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        driver.run(0, SourceOffsets(), job.write)
    driver.close()
    assert numbers_in(even, table) == []
    even.run("ALTER DOMAIN even_length DROP CONSTRAINT even")
    job.tasks = [[batch_of({6: "odd"})]]
    job.run(1)
    assert numbers_in(even, table) == [0, 2, 4, 6]
    assert [letter["n"] for letter in job.letters()] == [1, 3, 5]


def test_a_driver_that_dies_before_the_decision_leaves_nothing(even: Database) -> None:
    """Neither rows nor dead letters; the next one judges anew."""
    table = even.table("n int PRIMARY KEY, v even_length")
    job = Job(even, table, [[batch_of({0: "ab", 1: "abc"})]])

    def die() -> None:
        raise KeyboardInterrupt

    job.after_judging = die
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert numbers_in(even, table) == [] and job.letters() == []
    even.run("ALTER DOMAIN even_length DROP CONSTRAINT even")
    job.after_judging = lambda: None
    job.run()
    assert numbers_in(even, table) == [0, 1] and job.letters() == []


def test_a_session_that_is_lost_before_the_decision(even: Database) -> None:
    """The epoch is loaded again as it was judged."""
    table = even.table("n int PRIMARY KEY, v even_length")
    job = Job(even, table, [[batch_of({0: "ab", 1: "abc"})]])

    def lose() -> None:
        even.end_sessions()
        even.run("ALTER DOMAIN even_length DROP CONSTRAINT even")

    job.after_judging = lose
    job.run()
    assert numbers_in(even, table) == [0]
    assert [letter["n"] for letter in job.letters()] == [1]


def test_what_was_judged_is_not_loaded_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read once for a whole epoch where the server takes all rows."""
    table = database.table("n int PRIMARY KEY, v jsonb")
    job = Job(database, table, [[numbered(5)]])
    driver = job.start()
    target: Any = job.participants[0].target  # type: ignore[attr-defined]
    loads = []
    frames = target._frames
    monkeypatch.setattr(target, "_frames", lambda parts: loads.append(parts) or frames(parts))
    driver.run(0, SourceOffsets(), job.write)
    driver.close()
    assert len(loads) == 1 and numbers_in(database, table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("guarantee", "is_lost"), [(Guarantee.AT_LEAST_ONCE, False), (Guarantee.AT_MOST_ONCE, True)]
)
def test_without_a_decision(database: Database, guarantee: Guarantee, *, is_lost: bool) -> None:
    """The same, and no marker. Also where the session is lost before the rows are delivered."""
    table = database.table("n int PRIMARY KEY, v jsonb")
    job = Job(database, table, [[numbered(5, [2])]], guarantee=guarantee)
    if is_lost:
        job.after_judging = database.end_sessions
    job.start()
    order = WriteOrder(QueryRun("weak", new_incarnation(), guarantee), 0, 0, 1)
    prepared = job.write(order)
    for participant in job.participants:
        participant.deliver([p for p in prepared if p.participant == participant.name])  # type: ignore[attr-defined]
        participant.close()
    assert numbers_in(database, table) == [0, 1, 3, 4]
    assert [letter["n"] for letter in job.letters()] == [2]
    assert database.rows("SELECT * FROM exactum_ledger") == []


def test_a_table_without_such_columns_is_not_judged(database: Database) -> None:
    """It has no such step at all, and its files are what COPY is sent."""
    query = database.query(database.table("n int, v text"), COLUMNS)
    query.tasks = lambda batch_id: [[numbered(5)]]
    driver = query.start()
    assert not driver.participant.judges
    driver.write(driver.order(0))
    driver.close()
    (file,) = query.staged()
    with file.open("rb") as opened:
        assert json.loads(opened.readline())["load"]["format"] == "binary"
