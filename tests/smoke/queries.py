"""Queries on whatever PySpark is installed, each in processes of its own, which die at a chosen event;
a further life finishes: over Spark Connect (`make connect`), and in a session of the script's own, on
the oldest and the newest PySpark (`make smoke`). See ``cell``.

    python -m tests.smoke.queries connect [CELL ...]
    python -m tests.smoke.queries classic [CELL ...]
"""

from __future__ import annotations

import io
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition

from exactum.local import LocalKafka
from exactum.spark.run.committed_epochs import ON_DIFFERENCE
from exactum.spark.settings import FORMAT
from tests.kit.crash import oracle
from tests.smoke.cell import BATCHES, ROWS, Cell, all_counts, all_rows, play, row_of
from tests.smoke.life import CHOSEN, ORDER, SLOW_S

TOO_LARGE = 1_200_000
ANSWER = "spark.python.authenticate.socketTimeout"
SECOND_PORT = 15003


class Query(Cell):
    """From files or a topic into files and topics."""

    def __init__(self, kafka: LocalKafka, connect: bool, folder: Path) -> None:
        name = folder.name
        self.source, self.topic = f"{name}-in", f"{name}-out"
        self.letters, self.few = f"{name}-letters", f"{name}-few"
        self.servers = kafka.bootstrap_servers
        for topic in (self.source, self.topic, self.few):
            kafka.create_topic(topic, partitions=2)
        larger = {"max.message.bytes": 3 * TOO_LARGE}
        kafka.create_topic(self.letters, partitions=2, config=larger)
        super().__init__(
            folder,
            connect=connect,
            servers=self.servers,
            source=self.source,
            topic=self.topic,
            out=str(folder / "out"),
        )

    def produce(self, values: list[bytes]) -> None:
        """Into the topic that the query reads."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        for number, value in enumerate(values):
            producer.produce(self.source, value=value, partition=number % 2)
        assert producer.flush(30) == 0

    def records(self, topic: str = "") -> Counter[str]:
        """What a read_committed reader sees, to the ends of the partitions."""
        seen = oracle.read_all(self.servers, [topic or self.topic])
        return Counter(f"{each.key or ''}={each.value}" for each in seen)

    def found(self) -> Iterator[tuple[str, Counter[str]]]:
        yield from super().found()
        yield "Kafka", self.records()


def as_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


def as_text(row: dict[str, Any]) -> bytes:
    return ",".join(map(str, row.values())).encode()


def as_avro(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas={}), row)
    return out.getvalue()


def killed(event: str, frame: str, whom: str = "") -> Callable[[Query], None]:
    def play(cell: Query) -> None:
        cell.give(*range(BATCHES))
        die = cell.life if whom == "worker" else cell.dies  # then the query fails, and says so
        die(frame, kill=f"{event}:2", whom=whom)
        assert cell.logged("commits") < BATCHES - 1, "it was not killed"
        cell.finishes(frame)
        cell.check(all_counts() if frame == "counted" else all_rows())

    return play


def reply_lost(cell: Query) -> None:
    """Of a commit that is done: the query stops, and the next start commits once more."""
    cell.give(*range(BATCHES))
    said = cell.life("counted", kill="commit:2/lost")
    assert said["error"] == "OutcomeUnknown", said
    cell.finishes("counted")
    cell.check(all_counts())


def two_servers(where: str) -> Callable[[Query], None]:
    """The first is frozen; the second takes over, and has finished when the first goes on."""

    def play(cell: Query) -> None:
        cell.give(*range(BATCHES))
        # However long its process does not answer: it is to be heard, and not to be given up.
        first = cell.begin(kill=f"{where}/waits", session={ANSWER: "600s"})
        try:
            first.until((cell.folder / "reached").exists, "it is held")
            first.pause()
            cell.finishes(port=SECOND_PORT)
            cell.check(all_rows())
            (cell.folder / "go").touch()
            first.resume()
            said = first.ends()
        finally:
            first.kill()
        assert said["error"] == "Fenced", said
        cell.check(all_rows())
        cell.finishes()
        cell.check(all_rows())

    return play


def from_a_topic(cell: Query) -> None:
    """Killed once decided; the consumer group follows, and what is no JSON is left out."""
    cell.produce([*(as_json(row_of(n)) for n in range(BATCHES * ROWS)), b"no JSON"])
    cell.dies(kill="EpochDecided:2", format="json", on_error="skip")
    cell.finishes(format="json", on_error="skip")
    cell.check(all_rows())
    group = Consumer({"bootstrap.servers": cell.servers, "group.id": cell.source})
    places = [TopicPartition(cell.source, partition) for partition in range(2)]
    committed = sum(place.offset for place in group.committed(places, timeout=30))
    group.close()
    assert 0 < committed <= BATCHES * ROWS + 1, committed  # the last second's may be missing


def up_to_an_end(cell: Query) -> None:
    """It ends where it is to stop, and the next start goes on behind it."""
    cell.produce([as_json(row_of(n)) for n in range(BATCHES * ROWS)])
    cell.finishes(format="json", end={"0": 40, "1": 0})
    assert cell.records().total() == 40
    cell.finishes(format="json")
    cell.check(all_rows())


def bad_record(cell: Query) -> None:
    """Refused by name: nothing of its micro-batch is visible."""
    cell.produce([as_json(row_of(0)), b"no JSON"])
    said = cell.life(format="json")
    assert (said["error"], said["code"]) == ("RowsRefused", "RECORD_BAD"), said
    cell.check(Counter())


def dead_letters(
    kind: str, encoded: Callable[[dict[str, Any]], bytes], bad: bytes, **more: Any
) -> Callable[[Query], None]:
    """Killed once decided, with bad records in several micro-batches: each is there once, with what
    is good of its own micro-batch; so is each row of a view.
    """

    def play(cell: Query) -> None:
        values = [encoded(row_of(n)) for n in range(BATCHES * ROWS)]
        wrong = {n: bad + values[n] for n in (BATCHES * ROWS - 10, ROWS + 10, ROWS - 10)}
        for place, value in wrong.items():
            values.insert(place, value)
        cell.produce(values)
        spec = {"format": kind, "on_error": "dead_letter", "letters": cell.letters, **more}
        spec["few"] = cell.few
        cell.dies(kill="EpochDecided:1", **spec)
        cell.finishes(**spec)
        cell.check(all_rows())
        of_one = {row: n for row, n in all_rows().items() if row.startswith(f"{CHOSEN}=")}
        assert cell.records(cell.few) == of_one
        wanted = [value.decode(errors="backslashreplace") for value in wrong.values()]
        assert cell.records(cell.letters) == Counter(f"={value}" for value in wanted)

    return play


def function_and_letters(cell: Query) -> None:
    """What may decode otherwise the second time is refused where it must be known in advance."""
    said = cell.life(format="function", on_error="dead_letter", letters=cell.letters)
    assert said["code"] == "SPARK_CONNECT", said


def view_and_letters(cell: Query) -> None:
    """A source in a view is refused beside dead letters, which it would cost; without them it is
    read.
    """
    cell.produce([as_json(row_of(0)), b"no JSON"])
    said = cell.life(format="json", view=cell.few, on_error="dead_letter", letters=cell.letters)
    assert said.get("code") == "SPARK_CONNECT", said
    cell.check(Counter())
    cell.finishes(format="json", view=cell.few, on_error="skip")
    assert cell.files().total() == 1


def load(cell: Query) -> None:
    """A batch load, twice; other rows are refused."""
    count = BATCHES * ROWS
    assert [cell.life(load=count) for _ in range(2)] == [{"written": True}, {"written": False}]
    said = cell.life(load=count + 1)
    assert (said["error"], said["code"]) == ("CheckpointRefused", "LOAD_OTHER_ROWS"), said
    cell.check(all_rows())


def own_output(cell: Query) -> None:
    """A query that would read what it writes is refused."""
    said = cell.life(format="json", topic=cell.source)
    assert said["code"] == "OWN_OUTPUT", said


def stopped(cell: Query) -> None:
    """Between two micro-batches: nothing is in doubt, and the next start goes on."""
    cell.give(*range(BATCHES))
    said = cell.finishes(stop="between", after="checkpoint/commits/1")
    assert said["active"] is False, said
    assert cell.logged("offsets") - cell.logged("commits") in (0, 1)
    cell.check(all_rows(cell.logged("commits") + 1))
    cell.finishes()
    cell.check(all_rows())


def asked_to_stop(cell: Query) -> None:
    """By a file, as ``exactum savepoint create --stop`` leaves one; the savepoint is a whole one."""
    cell.give(*range(BATCHES))
    savepoint = str(cell.folder / "savepoint")

    def ask() -> None:
        cell.commits(2)
        from_here = ("--checkpoint", str(cell.checkpoint), "--to", savepoint)
        cell.command("savepoint", "create", *from_here, "--stop")

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        said = cell.finishes(endless=True)
        asked.result()
    assert said["active"] is False, said
    cell.command("savepoint", "verify", savepoint)
    cell.check(all_rows(cell.logged("commits") + 1))
    cell.finishes()
    cell.check(all_rows())


def stopped_now(cell: Query) -> None:
    """Its tasks end soon, though Spark leaves them to the worker."""
    cell.give(0)
    said = cell.finishes("slow", stop="now", after="tasks")
    assert said["stop_s"] < SLOW_S / 2, said
    cell.check(Counter())
    cell.finishes()
    cell.check(all_rows(1))


def refused(cell: Query) -> None:
    """An error of a task is exactum's own on the client; with dead letters the row is put aside."""
    cell.give(0)
    cell.give(1, v="x" * TOO_LARGE)
    said = cell.life()
    assert (said["error"], said["code"]) == ("RowsRefused", "ROWS_REFUSED"), said
    cell.check(all_rows(1))
    cell.finishes(letters=cell.letters)
    assert cell.records() == all_rows(1)
    assert cell.records(cell.letters).total() == ROWS


def differing(cell: Query) -> None:
    """An epoch that stands, and comes out otherwise when it is computed once more."""
    cell.give(*range(BATCHES))
    cell.dies("changing", kill="EpochCompleted:2")
    said = cell.life("changing")
    assert (said["error"], said["code"]) == ("CheckpointRefused", "RESULT_DIFFERS"), said


def unnamed_state(cell: Query) -> None:
    """In format 1 a query with state is refused, unless its user says that it gives the same
    result each time; one without goes on (the cells of ``plain``).
    """
    cell.give(*range(BATCHES))
    plain = {FORMAT: "1"}
    said = cell.life("counted", session=plain)
    assert (said["error"], said["code"]) == ("SettingRefused", "STATE_FORMAT"), said
    cell.check(Counter())
    cell.finishes("counted", session={**plain, ON_DIFFERENCE: "warn"})
    cell.check(all_counts())


def at_least_once(cell: Query) -> None:
    cell.give(*range(BATCHES))
    cell.finishes(guarantee="at_least_once")
    cell.check(all_rows())


EVENTS = ("EpochBegan", "verify", "EpochDecided", "commit", "EpochCompleted")
EVERYWHERE: dict[str, Callable[[Query], None]] = {
    "counted-EpochCompleted": killed("EpochCompleted", "counted"),
    "topic": from_a_topic,
    "topic-letters": dead_letters("json", as_json, b"{"),
}
CLASSIC = {
    **EVERYWHERE,
    "topic-end": up_to_an_end,
    "text-letters": dead_letters("text", as_text, b"\xff"),
    "avro-letters": dead_letters("avro", as_avro, b"\x02\x02"),
}
CONNECT = {
    **{f"{frame}-{e}": killed(e, frame) for frame in ("plain", "counted") for e in EVENTS},
    "reply-lost": reply_lost,
    **{f"two-servers-{at}": two_servers(f"{at}:2") for at in ("verify", "EpochDecided")},
    "worker-EpochDecided": killed("EpochDecided", "counted", whom="worker"),
    **EVERYWHERE,
    "topic-bad": bad_record,
    "topic-function": function_and_letters,
    "topic-view": view_and_letters,
    "topic-since": dead_letters("json", as_json, b"{", since="1"),
    "topic-own": own_output,
    "load": load,
    "stopped": stopped,
    "asked": asked_to_stop,
    "stopped-now": stopped_now,
    "refused": refused,
    "differing": differing,
    "state-format-1": unnamed_state,
    "at-least-once": at_least_once,
}


def main(where: str, *names: str) -> int:
    connect = where == "connect"
    versions = f"PySpark {metadata.version('pyspark')}, Python {platform.python_version()}"
    title = f"{versions}{', over Spark Connect' if connect else ''}"
    with LocalKafka() as kafka:
        new = partial(Query, kafka, connect)
        return play(title, CONNECT if connect else CLASSIC, new, names)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
