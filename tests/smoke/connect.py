"""exactum over Spark Connect, on whatever PySpark is installed (`make connect`): each query in a
process of its own with a server of its own, which dies at a chosen event; a further life finishes.

    python connect.py                 every cell; ends with 1 where one is not exact
    python connect.py CELL ...        these

What was written is read by Kafka's and Python's own means, in a process without exactum's sinks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

BATCHES, ROWS, KEYS = 5, 60, 7
COLUMNS = "id long, k string, v string"
LIFE_TIMEOUT_S = 240
RECORD = "k AS key", "concat(id, ':', v) AS value"
SLOW_S = 20.0
TOO_LARGE = 1_200_000


# ---- a life: the process that starts the query -----------------------------------------------


def live(spec: dict[str, Any]) -> None:
    """Start the query of ``spec`` and say how it ended, as one line of JSON."""
    from pyspark.sql import SparkSession

    import exactum
    from exactum import local

    folder = Path(spec["folder"])
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", ",".join(map(str, local.spark_kafka_jars())))
        .getOrCreate()
    )
    servers = spec["servers"]
    try:
        of_kafka = spec.get("source") == "kafka"
        rows = from_kafka(spark, spec) if of_kafka else from_files(spark, folder)
    except exactum.errors.ExactumError as raised:
        print(json.dumps({"code": getattr(raised, "code", str(raised))}), flush=True)
        return
    made = getattr(Frames, spec["frame"])(rows, folder)
    once = getattr(exactum, spec.get("guarantee", "exactly_once"))(
        exactum.FileSink(str(folder / "out"), format="json"),
        exactum.KafkaSink(
            spec.get("topic_out", spec["topic"]),
            bootstrap_servers=servers,
            rows=as_records if spec["frame"] == "counted" else exactum.Rows(columns=RECORD),
        ),
        dead_letters=exactum.KafkaSink(f"{spec['topic']}-dead", bootstrap_servers=servers)
        if spec.get("dead_letters")
        else None,
        decision_log=str(folder / "decisions") if spec.get("load") else None,
        on_event=Killer(spec.get("kill", ""), spec.get("whom", "server")),
    )
    if spec.get("load"):
        rows = spark.range(spec["load"]).selectExpr(
            "id", f"CAST(id % {KEYS} AS string) AS k", "'v' AS v"
        )
        print(json.dumps(loaded(once, rows, "numbers")), flush=True)
        return
    writer = made.writeStream.outputMode(
        "append" if spec["frame"] in ("plain", "slow") else "update"
    )
    stops = spec.get("stop")
    writer = (
        writer.trigger(processingTime="0 seconds") if stops else writer.trigger(availableNow=True)
    )
    said: dict[str, Any] = {}
    try:
        query = once.start(writer, checkpoint=str(folder / "checkpoint"), name="smoke")
        if stops and stops != "asked":
            wait_for((folder / spec["after"]).exists)
            begin_s = time.monotonic()
            query.stop(now=stops == "now")
            said["stop_s"] = time.monotonic() - begin_s
        else:
            query.awaitTermination()
        error = query.exception()
        said |= {"active": query.isActive, "name": query.name}
    except Exception as raised:
        error = raised
    if error is not None:
        said |= {
            "error": type(error).__name__,
            "code": getattr(error, "code", ""),
            "text": str(error),
        }
    print(json.dumps(said), flush=True)


def loaded(once: Any, rows: Any, name: str) -> dict[str, Any]:
    try:
        return {"written": once.write(rows, id=name).written}
    except Exception as error:
        return {"error": type(error).__name__, "code": getattr(error, "code", str(error))}


def from_files(spark: Any, folder: Path) -> Any:
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return stream.json(str(folder / "in"))


def from_kafka(spark: Any, spec: dict[str, Any]) -> Any:
    """By exactum's source, with a policy for bad records."""
    import exactum

    topic, servers = f"{spec['topic']}-in", spec["servers"]
    records = exactum.read_kafka(
        spark, topic, bootstrap_servers=servers, group_id=topic, maxOffsetsPerTrigger=ROWS
    )
    value = exactum.Function(json.loads, COLUMNS) if spec.get("function") else exactum.Json(COLUMNS)
    decoded = exactum.decode(records, value, on_error=spec.get("on_error", "fail"))
    return decoded.select("value.*")


class Frames:
    """What the queries make of the rows."""

    @staticmethod
    def plain(rows: Any, folder: Path) -> Any:
        return rows

    @staticmethod
    def slow(rows: Any, folder: Path) -> Any:
        return rows.mapInArrow(Slow(folder / "tasks"), COLUMNS)

    @staticmethod
    def counted(rows: Any, folder: Path) -> Any:
        counts = rows.groupBy("k").count()
        return counts.selectExpr("count AS id", "k", "'n' AS v")

    @staticmethod
    def changing(rows: Any, folder: Path) -> Any:
        """Another result at each run of Python."""
        counts = rows.groupBy("k").count()
        return counts.selectExpr("count AS id", "k", f"'{os.getpid()}' AS v")


class Slow:
    """Takes its time for each batch, and says in a file that it is at work."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for _ in range(int(SLOW_S * 10)):
                self.file.touch()
                time.sleep(0.1)
            yield batch


def as_records(frame: Any) -> Any:
    return frame.selectExpr(*RECORD)


class Killer:
    """Kills Spark's server, or the worker beside it, at ``event:batch``; called in the worker."""

    def __init__(self, at: str, whom: str) -> None:
        self.at, self.whom = at, whom

    def __call__(self, event: Any) -> None:
        if f"{type(event).__name__}:{event.batch_id}" != self.at:
            return
        if self.whom == "server":
            os.kill(java_above(), signal.SIGKILL)
        os._exit(9)


def java_above() -> int:
    process = os.getpid()
    while process > 1:
        text = Path(f"/proc/{process}/stat").read_text()
        if "(java)" in text:
            return process
        process = int(text.rpartition(")")[2].split()[1])
    raise RuntimeError("no JVM above")


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIFE_TIMEOUT_S / 2
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(0.02)


# ---- the cells ---------------------------------------------------------------------------------


class Cell:
    """One query's lives, and what must be there afterwards."""

    def __init__(self, name: str, kafka: Any, folder: Path) -> None:
        self.folder = folder / name
        self.topic = f"out-{name}"
        (self.folder / "in").mkdir(parents=True)
        for topic in (self.topic, f"{self.topic}-in"):
            kafka.create_topic(topic, partitions=2)
        larger = {"max.message.bytes": 3 * TOO_LARGE}
        kafka.create_topic(f"{self.topic}-dead", partitions=2, config=larger)
        self.servers = kafka.bootstrap_servers

    def give(self, batch: int, **changes: str) -> None:
        lines = [row_of(n, **changes) for n in range(batch * ROWS, (batch + 1) * ROWS)]
        hidden = self.folder / "in" / f".{batch}"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (batch + 1, batch + 1))  # the order in which Spark reads the files
        hidden.rename(self.folder / "in" / f"{batch}.json")

    def give_all(self) -> None:
        for batch in range(BATCHES):
            self.give(batch)

    def produce(self, values: list[str]) -> None:
        """Into the topic that the query reads."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number, value in enumerate(values):
            producer.produce(f"{self.topic}-in", value=value, partition=number % 2)
        assert producer.flush(30) == 0

    def life(self, frame: str = "plain", *, dies: bool = False, **spec: Any) -> dict[str, Any]:
        """What the process said; {} where it was to die. A client that has lost its server tries
        for minutes, so that one is ended.
        """
        told = {"folder": str(self.folder), "topic": self.topic, "servers": self.servers}
        command = [sys.executable, __file__, "--life", json.dumps({**told, "frame": frame, **spec})]
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
            try:
                if dies:
                    self._await_death(process)
                    return {}
                out, _ = process.communicate(timeout=LIFE_TIMEOUT_S)
            finally:
                end(process)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        assert lines, f"it said nothing; see {self.folder / 'log'}"
        return dict(json.loads(lines[-1]))

    def _await_death(self, process: subprocess.Popen[str]) -> None:
        def java() -> set[int]:
            return {p for p in session_of(process.pid) if "java" in command_of(p)}

        wait_for(lambda: bool(java()) or process.poll() is not None)
        deadline_s = time.monotonic() + LIFE_TIMEOUT_S
        while java() and process.poll() is None:
            assert time.monotonic() < deadline_s, "the server did not die"
            time.sleep(0.05)

    def files(self) -> Counter[str]:
        paths = [p for p in (self.folder / "out").rglob("*.json") if ".exactum" not in p.parts]
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return Counter(f"{row['k']}={row['id']}:{row['v']}" for row in rows)

    def records(self, topic: str | None = None) -> Counter[str]:
        return Counter(read(self.servers, topic or self.topic))

    def check(self, expected: Counter[str]) -> None:
        for where, found in (("files", self.files()), ("Kafka", self.records())):
            assert found == expected, (
                f"{where}: {(expected - found).total()} lost, {(found - expected).total()} too many"
            )

    def logged(self, what: str) -> int:
        """The highest batch in one of Spark's logs."""
        return max(
            (int(p.name) for p in (self.folder / "checkpoint" / what).glob("[0-9]*")), default=-1
        )


def row_of(number: int, **changes: str) -> str:
    return json.dumps({"id": number, "k": str(number % KEYS), "v": "v", **changes})


def all_rows(batches: int = BATCHES) -> Counter[str]:
    return Counter(f"{n % KEYS}={n}:v" for n in range(batches * ROWS))


def all_counts() -> Counter[str]:
    """The count of each key after each micro-batch that has it."""
    found: Counter[str] = Counter()
    for batch in range(BATCHES):
        seen = Counter(str(n % KEYS) for n in range((batch + 1) * ROWS))
        found.update(f"{k}={n}:n" for k, n in seen.items())
    return found


def killed(event: str, frame: str, whom: str = "server") -> Callable[[Cell], None]:
    def play(cell: Cell) -> None:
        cell.give_all()
        cell.life(frame, kill=f"{event}:2", whom=whom, dies=whom == "server")
        assert cell.logged("commits") < BATCHES - 1, "it was not killed"
        said = cell.life(frame)
        assert "error" not in said, said
        cell.check(all_counts() if frame == "counted" else all_rows())

    return play


def from_a_topic(cell: Cell) -> None:
    """Killed once decided; the consumer group follows, and what is no JSON is left out."""
    values = [row_of(n) for n in range(BATCHES * ROWS)]
    cell.produce([*values, "no JSON"])
    kafka: dict[str, Any] = {"source": "kafka", "on_error": "skip"}
    cell.life(kill="EpochDecided:2", dies=True, **kafka)
    said = cell.life(**kafka)
    assert "error" not in said, said
    cell.check(all_rows())
    group = Consumer({"bootstrap.servers": cell.servers, "group.id": f"{cell.topic}-in"})
    places = [TopicPartition(f"{cell.topic}-in", partition) for partition in range(2)]
    committed = sum(place.offset for place in group.committed(places, timeout=30))
    group.close()
    assert 0 < committed <= len(values) + 1, committed  # the last second's may be missing


def bad_record(cell: Cell) -> None:
    """Refused by name: nothing of its micro-batch is visible."""
    cell.produce([row_of(0), "no JSON"])
    said = cell.life(source="kafka")
    assert (said.get("error"), said.get("code")) == ("RowsRefused", "RECORD_BAD"), said
    assert not cell.files() and not cell.records()


def dead_letters(cell: Cell) -> None:
    """Killed once decided, with bad records in two micro-batches: each is there once, with what is
    good of its own micro-batch. What may decode otherwise the second time is refused.
    """
    values = [row_of(n) for n in range(BATCHES * ROWS)]
    bad = {BATCHES * ROWS - 10: "no JSON", ROWS + 10: "nor this", ROWS - 10: "not this"}
    for place in sorted(bad, reverse=True):
        values.insert(place, bad[place])
    cell.produce(values)
    spec: dict[str, Any] = {
        "source": "kafka",
        "on_error": "dead_letter",
        "dead_letters": True,
    }
    said = cell.life(function=True, **spec)
    assert said == {"code": "SPARK_CONNECT"}, said
    cell.life(kill="EpochDecided:1", dies=True, **spec)
    assert 0 < cell.logged("offsets") < BATCHES, "it was not killed"
    said = cell.life(**spec)
    assert "error" not in said, said
    cell.check(all_rows())
    letters = cell.records(f"{cell.topic}-dead")
    assert letters == Counter(f"={value}" for value in bad.values()), letters


def load(cell: Cell) -> None:
    """A batch load, twice; other rows are refused."""
    count = BATCHES * ROWS
    said = [cell.life(load=each) for each in (count, count, count + 1)]
    other = {"error": "CheckpointRefused", "code": "LOAD_OTHER_ROWS"}
    assert said == [{"written": True}, {"written": False}, other], said
    cell.check(all_rows())


def own_output(cell: Cell) -> None:
    """A query that would read what it writes is refused."""
    said = cell.life(source="kafka", topic_out=f"{cell.topic}-in")
    assert said.get("code") == "OWN_OUTPUT", said


def stopped(cell: Cell) -> None:
    """Between two micro-batches: nothing is in doubt, and the next start goes on."""
    cell.give_all()
    said = cell.life(stop="between", after="checkpoint/commits/1")
    assert said.get("error") is None and said["active"] is False, said
    assert cell.logged("offsets") - cell.logged("commits") in (0, 1)
    done = cell.logged("commits") + 1
    cell.check(all_rows(done))
    cell.life()
    cell.check(all_rows())


def asked_to_stop(cell: Cell) -> None:
    """By a file, as ``exactum savepoint create --stop`` leaves one; the savepoint is a whole one."""
    cell.give_all()
    create = ["savepoint", "create", "--checkpoint", str(cell.folder / "checkpoint"), "--stop"]
    create += ["--to", str(cell.folder / "savepoint")]

    def ask() -> None:
        wait_for((cell.folder / "checkpoint" / "commits" / "1").exists)
        command(*create)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        said = cell.life(stop="asked")
        asked.result()
    assert said.get("error") is None and said["active"] is False, said
    command("savepoint", "verify", str(cell.folder / "savepoint"))
    cell.check(all_rows(cell.logged("commits") + 1))
    cell.life()
    cell.check(all_rows())


def command(*words: str) -> None:
    """Of exactum, in a process of its own."""
    code = "from exactum.ops.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *words], check=True, timeout=LIFE_TIMEOUT_S)


def stopped_now(cell: Cell) -> None:
    """Its tasks end soon, though Spark leaves them to the worker."""
    cell.give(0)
    said = cell.life("slow", stop="now", after="tasks")
    assert "error" not in said, said
    assert said["stop_s"] < SLOW_S / 2, said
    assert not cell.files() and not cell.records()
    cell.life()
    cell.check(all_rows(1))


def refused(cell: Cell) -> None:
    """An error of a task is exactum's own on the client; with dead letters the row is put aside."""
    cell.give(0)
    cell.give(1, v="x" * TOO_LARGE)
    said = cell.life()
    assert (said.get("error"), said.get("code")) == ("RowsRefused", "ROWS_REFUSED"), said
    cell.check(all_rows(1))
    said = cell.life(dead_letters=True)
    assert "error" not in said, said
    assert cell.records() == all_rows(1)
    assert cell.records(f"{cell.topic}-dead").total() == ROWS


def differing(cell: Cell) -> None:
    """An epoch that stands, and comes out otherwise when it is computed once more."""
    cell.give_all()
    cell.life("changing", kill="EpochCompleted:2", dies=True)
    said = cell.life("changing")
    assert (said.get("error"), said.get("code")) == ("CheckpointRefused", "RESULT_DIFFERS"), said


def at_least_once(cell: Cell) -> None:
    cell.give_all()
    said = cell.life(guarantee="at_least_once")
    assert "error" not in said, said
    cell.check(all_rows())


EVENTS = ("EpochBegan", "EpochDecided", "EpochCompleted")
CELLS: dict[str, Callable[[Cell], None]] = {
    **{f"{frame}-{e}": killed(e, frame) for frame in ("plain", "counted") for e in EVENTS},
    "worker-EpochDecided": killed("EpochDecided", "counted", whom="worker"),
    "topic": from_a_topic,
    "topic-bad": bad_record,
    "topic-letters": dead_letters,
    "topic-own": own_output,
    "load": load,
    "stopped": stopped,
    "asked": asked_to_stop,
    "stopped-now": stopped_now,
    "refused": refused,
    "differing": differing,
    "at-least-once": at_least_once,
}


def read(servers: str, topic: str) -> Iterator[str]:
    """What a read_committed reader sees, to the ends of the partitions."""
    settings = {
        "group.id": "smoke",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(2)])
    left = 2
    while left:
        message = consumer.poll(10)
        assert message is not None, "Kafka says nothing"
        if message.error() is None:
            yield f"{(message.key() or b'').decode()}={message.value().decode()}"
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            left -= 1
    consumer.close()


def session_of(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text()
    except OSError:
        return ""


def end(process: subprocess.Popen[str]) -> None:
    """With all that it has started."""
    for one in session_of(process.pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def main(names: list[str]) -> None:
    from exactum.local import LocalKafka

    wrong = []
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        for name in names or CELLS:
            begin_s = time.monotonic()
            cell = Cell(name, kafka, Path(folder))
            try:
                CELLS[name](cell)
                outcome = "exact"
            except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
                wrong.append(name)
                log = (cell.folder / "log").read_text()[-3000:]
                outcome = f"NOT exact: {type(error).__name__}: {error}\n{log}"
            print(f"{name}: {outcome} ({time.monotonic() - begin_s:.0f} s)", flush=True)
    where = f"PySpark {metadata.version('pyspark')} over Spark Connect"
    print(f"{where}: {f'NOT exact: {wrong}' if wrong else 'exact'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--life"]:
        live(json.loads(sys.argv[2]))
    else:
        main(sys.argv[1:])
