"""``exactum dead-letters`` as somebody types it: letters in Kafka, PostgreSQL and files, sent on again
once.
"""

from __future__ import annotations

import copy
import json
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result

from exactum import FileSink, PostgresSink
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused, Fenced
from exactum.ops.dead_letters import replay
from exactum.protocol.sink import Rejection, Sink
from exactum.spark.write.dead_letter import dead_letters
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.kafka.transactions import Record
from tests.kit.python import python
from tests.kit.query_record import note, on_file
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import postgres_server
from tests.kit.transactions.given import give_always, given
from tests.kit.transactions.operator import invoke
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker
LETTERS = 6
TIMES_MS = 1_700_000_000_000


class World:
    """A query whose dead letters lie in one kind of sink, and its input topic."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.servers = {"bootstrap.servers": broker.servers}
        self.source, self.target = broker.topic("in", 1), broker.topic("again", 2)
        self.letters, self.out = broker.topic("dead", 2), broker.topic("out")
        self.folder = folder
        self.refused = [(n, f"k{n}") for n in [*range(LETTERS - 1), LETTERS - 2]]
        """Offsets and keys of the records that a batch puts aside."""
        self.given = 0
        self.knows_times = True
        for number in range(LETTERS):
            self.give(f"original {number}", f"k{number}")

    def give(self, value: str, key: str, headers: Any = None) -> None:
        """One more record of the input topic."""
        producer = producer_to(self.broker.servers)
        self.given += 1
        producer.produce(
            self.source, value, key, 0, headers=headers, timestamp=TIMES_MS + self.given
        )
        assert producer.flush(WAIT_MAX_S) == 0

    def query(self, sink: Callable[[], Sink]) -> RecordedQuery:
        columns = tuple(sink().dead_letter_columns)
        kafka_sink = lambda: self.broker.sink(self.out)  # noqa: E731
        messages = lambda batch_id: [[pa.record_batch({"value": [str(batch_id)]})]]  # noqa: E731
        query = RecordedQuery(
            self.folder / "checkpoint",
            {
                "kafka:out": (kafka_sink, (("value", "string"),), messages),
                "dead letters": (sink, columns, lambda batch_id: [[self.rejected(columns)]]),
            },
        )
        query.run([0])
        return query

    def in_kafka(self) -> RecordedQuery:
        """Its letters lie in Kafka."""
        return self.query(lambda: self.broker.sink(self.letters))

    def rejected(self, columns: Sequence[tuple[str, str]]) -> Any:
        """Letters as a task makes them; two are of one record, and one of no record that is known."""
        numbers = [number for number, _ in self.refused]
        times_ms = {each.offset: each.at_ms for each in self.messages(self.source)}
        rows = pa.record_batch(
            {
                "key": [key for _, key in self.refused],
                "value": [f"as refused {n}" for n in numbers],
                "topic": [self.source] * len(numbers),
                "partition": pa.array([0] * len(numbers), pa.int32()),
                "offset": pa.array(numbers, pa.int64()),
                "timestamp": pa.array([times_ms[n] for n in numbers], pa.timestamp("ms")),
            }
        )
        rows = rows if self.knows_times else rows.drop_columns(["timestamp"])
        reasons = tuple(f"row {n} of 'k{n}' is too long for column 'name'" for n in numbers)
        return dead_letters(Rejection(rows, reasons), "table", [name for name, _ in columns])

    def read(self, topic: str) -> list[tuple[str, str]]:
        """What a read_committed reader sees: keys and values."""
        return sorted(
            ((m.key or b"").decode(), (m.value or b"").decode()) for m in self.messages(topic)
        )

    def messages(self, topic: str) -> list[Record]:
        """As the reader gets them; of one partition in its order."""
        return self.broker.read(topic)


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> World:
    return World(broker, tmp_path)


def typed(query: Any, command: str, *more: str) -> Result:
    return invoke("dead-letters", command, "--checkpoint", query.folder, *more)


def replayed(query: Any, *to: str, status: int = 0) -> str:
    """What a replay prints, which is not asked whether it may."""
    result = typed(query, "replay", *to, "--yes")
    assert result.exit_code == status, result.output
    return result.output


def listed(query: RecordedQuery) -> list[dict[str, Any]]:
    output = typed(query, "list", "--each", "--json").stdout
    return [json.loads(line) for line in output.splitlines()]


AS_STORED = sorted((f"k{n}", f"as refused {n}") for n in [*range(LETTERS - 1), LETTERS - 2])
ORIGINALS = [(f"k{n}", f"original {n}") for n in range(LETTERS)]


def test_in_kafka(world: World) -> None:
    """Listed by reason without what is of one row; one is shown whole; a replay sends all, and a
    second one none; the records themselves go back once, whoever refused them; circles and wrong
    calls are refused.
    """
    query = world.in_kafka()
    (group,) = json.loads(typed(query, "list", "--json").stdout)
    assert (group["count"], group["replayed"], group["sink"]) == (LETTERS, 0, "table")
    assert group["reason"] == "row … of … is too long for column …"
    shown = typed(query, "show", group["example"]).output
    for part in ("refused by  table", "as refused", f"{world.source}-0@", "sent again  no"):
        assert part in shown, shown
    assert "no dead letter" in typed(query, "show", "x-0@1").output

    assert "never end" in replayed(query, "--to", world.letters, status=2)
    replayed(query, status=2)
    to = ("--to", world.target)
    typo = replayed(query, *to, "--id", "dead-0@1x", status=2)
    assert "no dead letter 'dead-0@1x'" in typo

    assert "1 records are sent" in replayed(query, *to, "--id", group["example"])
    replayed(query, *to)
    assert world.read(world.target) == AS_STORED
    query.run([1])
    replayed(query, *to)
    assert world.read(world.target) == sorted(AS_STORED * 2)
    assert "0 dead letters are to be sent" in replayed(query, *to)
    assert {letter["replayed_to"] for letter in listed(query)} == {world.target}


def test_records_go_back_to_their_topic(world: World) -> None:
    """Not as they were refused, but as they were read; one that two letters are of, once; one that
    retention took is named.
    """
    query = world.in_kafka()
    world.broker.delete_before(world.source, 0, 1)
    said = replayed(query, "--to-source", status=1)
    assert f"{LETTERS - 2} records are sent" in said
    assert "is gone, or is another one" in said
    twice = Counter(world.read(world.source))
    assert twice == Counter(ORIGINALS[1:] + ORIGINALS[1 : LETTERS - 1])
    assert sum(letter["replayed_to"] is not None for letter in listed(query)) == LETTERS - 1
    replayed(query, "--to-source", status=1)
    assert Counter(world.read(world.source)) == twice


def test_where_the_last_replay_went_may_be_gone(world: World) -> None:
    """What it sent was visible, and is not asked for again: weeks later its topic may be deleted,
    or Kafka may have forgotten its transaction.
    """
    query = world.in_kafka()
    replayed(query, "--to", world.target)
    world.broker.kafka.delete_topic(world.target)
    query.run([1])
    other = world.broker.topic("elsewhere", 1)
    for _ in range(2):
        replayed(query, "--to", other)
    assert world.read(other) == AS_STORED


def test_a_record_goes_back_with_its_headers(world: World) -> None:
    """All of them, in their order, a null and a repeated name among them; and with one of the
    letter, which a second replay of the same record replaces.
    """
    own = [("trace", b"7"), ("empty", None), ("trace", b"8")]
    world.give("with headers", "k9", own)
    world.refused = [(LETTERS, "k9")]
    query = world.in_kafka()
    for again in (1, 2):
        (letter,) = [each for each in listed(query) if each["replayed_to"] is None]
        assert "1 records are sent" in replayed(query, "--to-source")
        sent = world.messages(world.source)[LETTERS + again].headers
        assert list(sent) == [*own, ("exactum.replayed", letter["identity"].encode())]
        world.refused = [(LETTERS + 1, "k9")]
        query.run([again])


@pytest.mark.parametrize("knows_times", [True, False])
def test_topics_that_were_made_anew(world: World, knows_times: bool) -> None:
    """Letters at the places of others that were sent are not taken for them; records at the places
    of others that were refused are not sent for them.
    """
    world.knows_times = knows_times
    query = world.in_kafka()
    replayed(query, "--to", world.target)
    world.broker.made_anew(world.letters, 2)
    query.run([1])
    assert [letter["replayed_to"] for letter in listed(query)] == [None] * LETTERS
    world.broker.made_anew(world.source)
    for number in range(LETTERS):
        world.give("innocent", f"k{number}")
    assert "is gone, or is another one" in replayed(query, "--to-source", status=1)
    assert len(world.read(world.source)) == LETTERS


def test_letters_of_a_query_that_puts_none_aside_any_more(world: World) -> None:
    """Who gives their sink has them listed, shown and sent on, and it is said that they are of
    former runs. Else what to give is said.
    """
    query = world.in_kafka()
    without_letters = {"kafka:out": query.sinks()["kafka:out"]}
    told = typed(query, "list", *given(without_letters))
    assert (told.exit_code, "[SINKS_NOT_GIVEN]" in told.output) == (2, True)
    assert "--sinks FILE.py:NAME" in told.output and "{'dead letters': " in told.output
    sinks = [sink for sink in on_file(query.folder).sinks if sink.name != "dead letters"]
    note(query.folder, query.query_id, sinks=tuple(sinks))
    (group,) = json.loads(typed(query, "list", "--json").stdout)
    assert group["count"] == LETTERS
    for command in ("list", "show"):
        told = typed(query, command, *([group["example"]] if command == "show" else []))
        assert told.exit_code == 0
        assert f"of former runs, in KafkaSink({world.letters!r}" in told.stderr
    assert f"{LETTERS} records are sent" in replayed(query, "--to", world.target)
    assert world.read(world.target) == AS_STORED
    told = typed(query, "list", *given(without_letters))
    assert told.exit_code == 2
    assert "[DEAD_LETTERS_UNKNOWN]" in told.output


def test_what_was_sent_is_known_where_the_query_goes_on(world: World, tmp_path: Path) -> None:
    """A savepoint that does not know of a replay moves no query; the place that a query has left
    sends nothing any more; where it is now, and in a fork of a fork, nothing is sent again.
    """
    query = world.in_kafka()
    create(str(query.folder), tmp_path / "before")
    to = ("--to", world.target)
    replayed(query, *to)
    with raised(CheckpointRefused, "SAVEPOINT_BEHIND", "dead letters"):
        restore(tmp_path / "before", str(tmp_path / "moved"), Identity.SAME)
    for number in (1, 2):
        create(str(query.folder), tmp_path / f"savepoint {number}")
        forked = restore(tmp_path / f"savepoint {number}", str(tmp_path / f"fork {number}"))
        fork = copy.copy(query)
        fork.folder, fork.query_id = Path(forked.checkpoint), forked.query_id
        give_always(fork.query_id, fork.sinks)
        world.refused = [(0, "k0")]
        fork.run([number])
        assert [each["replayed_to"] for each in listed(fork)].count(None) == 1
        assert "1 records are sent" in replayed(fork, *to)
        if number == 1:
            moved = restore(tmp_path / "savepoint 1", str(tmp_path / "moved"), Identity.SAME)
            for command in (("replay", *to, "--yes"), ("list",)):
                told = typed(query, *command)
                assert told.exit_code and "is retired" in told.output, told.output
            query.folder = Path(moved.checkpoint)
            assert [each["replayed_to"] for each in listed(query)].count(None) == 1, "the fork's"
            query = fork
    assert Counter(world.read(world.target)) == Counter([*AS_STORED, *[("k0", "as refused 0")] * 2])


@pytest.mark.postgres
def test_a_replay_from_a_table(world: World, postgres: LocalPostgres, monkeypatch: Any) -> None:
    """Letters without a place are named by what they hold; two that are equal are two."""
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    with postgres_server.Database.cleaned(postgres) as database:
        query = world.query(lambda: PostgresSink(database.url, table="letters", create_table=True))
        assert len({letter["identity"] for letter in listed(query)}) == LETTERS
        replayed(query, "--to", world.target)
        assert world.read(world.target) == AS_STORED
        assert "0 dead letters" in replayed(query, "--to", world.target)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Of another format, or damaged: said, and nothing is listed as if it were all."""
    letter = pa.record_batch({"value": [b"bad"], "error": ["too long"], "sink": ["table"]})
    columns = (("value", "binary"), ("error", "string"), ("sink", "string"))
    for kind, damage, said in (
        ("csv", None, "give the query a folder of Parquet or JSON"),
        ("json", b"{", "cannot be read"),
        ("parquet", b"PAR1", "cannot be read"),
    ):
        out = tmp_path / kind / "letters"
        sink = lambda out=out, kind=kind: FileSink(str(out), format=kind)  # noqa: E731
        tasks = lambda batch_id: [[letter]]  # noqa: E731
        query = RecordedQuery(
            tmp_path / kind / "checkpoint", {"dead letters": (sink, columns, tasks)}
        )
        query.run([0])
        (file,) = out.glob("part-*")
        if damage is not None:
            file.write_bytes(damage)
        told = typed(query, "list")
        assert (told.exit_code, said in told.output) == (2, True), told.output
    out.rename(tmp_path / "moved")
    out.symlink_to(out)  # its file system answers with an error
    told = typed(query, "list")
    assert (told.exit_code, "could not be listed" in told.output) == (2, True), told.output


DYING = """
import os, signal, sys
from exactum.ops.cli import main
from exactum.protocol import coordinator

decide = coordinator.PermitLog.decide
def dying(self, record):
    if {before} and record.prepared:
        os.kill(os.getpid(), signal.SIGKILL)
    stands = decide(self, record)
    if record.prepared:
        os.kill(os.getpid(), signal.SIGKILL)
    return stands
coordinator.PermitLog.decide = dying
main(sys.argv[1:])
"""


def test_a_replay_beside_another_leaves_nothing_out(world: World, monkeypatch: Any) -> None:
    """One sends two batches while the other begins: that one goes on behind them, and the first is
    fenced. Who lists the letters meanwhile is not told that it was killed.
    """
    query = world.in_kafka()
    place = QueryPlace.of(query.folder)
    monkeypatch.setattr(replay, "LETTERS_PER_EPOCH_MAX", 1)
    records = [
        replay.Record(f"{n}", (f"{n}",), world.target, f"k{n}".encode(), b"v") for n in range(5)
    ]

    def begun() -> replay.Replay:
        return replay.Replay(place.files, place.query_id, replay.sink_of(None, world.servers))

    read = replay._decided
    with closing(begun()) as first:

        def while_it_sends(*of: Any) -> Any:
            decided = read(*of)
            monkeypatch.setattr(replay, "_decided", read)
            told = list[str]()
            done = first.send(records[:2], lambda count: told.append(typed(query, "list").stderr))
            assert done.sent == 2
            assert all("a replay is at work, or was killed" in each for each in told), told
            return decided

        monkeypatch.setattr(replay, "_decided", while_it_sends)
        with closing(begun()) as second:
            assert second.send(records).sent == 3
        with pytest.raises(Fenced):
            first.send(records[3:])
    assert world.read(world.target) == [(f"k{n}", "v") for n in range(5)]


SCRIPT = """
from exactum import KafkaSink
SINKS = {{
    "kafka:out": KafkaSink({out!r}, bootstrap_servers={server!r}),
    "dead letters": KafkaSink({letters!r}, bootstrap_servers={server!r}),
}}
"""


@pytest.mark.variants(1)
@pytest.mark.parametrize("before", [True, False])
def test_a_replay_that_is_killed_sends_nothing_twice(world: World, before: bool) -> None:
    """Right before its decision: nothing of it is ever seen. Right after it: the next one finishes
    it, and sends nothing more.
    """
    query = world.in_kafka()
    arguments = ("dead-letters", "replay", "--checkpoint", query.folder, "--yes")
    script = query.folder.parent / "sinks.py"
    servers = world.broker.servers
    script.write_text(SCRIPT.format(out=world.out, letters=world.letters, server=servers))
    dying, sinks = DYING.format(before=before), f"{script}:SINKS"
    to = ("--to", world.target)
    python(dying, *arguments, *to, status=-signal.SIGKILL, EXACTUM_SINKS=sinks)
    assert [letter["replayed_to"] for letter in listed(query)] == [None] * LETTERS
    told = typed(query, "list")
    assert told.exit_code == (0 if before else 1), told.output
    assert ("or was killed" in told.output) != before
    said = replayed(query, *to)
    assert ("had decided is visible" in said) != before
    assert typed(query, "list").exit_code == 0
    assert [letter["replayed_to"] for letter in listed(query)] == [world.target] * LETTERS
    assert world.read(world.target) == AS_STORED
