"""A life: a process that starts one query on whatever PySpark is installed, and leaves how it ended
in a file. ``cell`` starts it.

Its one argument is a JSON object, the spec; what it may say:

    said, folder     the file that it leaves; where ``in``, ``tasks``, ``reached`` and ``go`` are
    connect          over Spark Connect, with a server of its own
    port             of that server, where another has Spark's own
    session          settings of Spark
    checkpoint
    frame            what the query makes of its rows (``Frames``)
    format           of the records of a topic (``FORMATS``); else it reads the files of ``in``
    since            the topic by Spark's own source, from this time on
    view             a topic that is read in a view, beside the other
    out, topic, table, letters, few      where the rows go
    kill             "event:batch": the driver dies there; with "/waits" it stays until it may go on;
                     "verify:2", "commit:2": once the topic's sink has done this for the second time;
                     with "/lost" it is not told so
    endless, stop, after                 when it ends
    load             so many rows, as a batch load
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum import local
from exactum.errors import OutcomeUnknown
from exactum.spark.settings import CHANGELOG, FORMAT, PROVIDER, ROCKSDB
from exactum.testing import interpose
from tests.kit.waiting import WAIT_MAX_S, await_true
from tests.smoke.cell import DYING, KEYS, ROWS

COLUMNS = "id long, k string, v string"
RECORD = "k AS key", "concat(id, ':', v) AS value"
CHOSEN = "3"
SLOW_S = WAIT_MAX_S
"""Of a task that nobody ends: no machine takes half of it to end one."""
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "k", "type": "string"},
        {"name": "v", "type": "string"},
    ],
}
TEXT = "split(value, ',')"
FORMATS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "json": (lambda: exactum.Json(COLUMNS), ["value.*"]),
    "function": (lambda: exactum.Function(json.loads, COLUMNS), ["value.*"]),
    "avro": (lambda: exactum.Avro(ORDER), ["value.*"]),
    "text": (
        exactum.String,
        [f"CAST({TEXT}[0] AS long) AS id", f"{TEXT}[1] AS k", f"{TEXT}[2] AS v"],
    ),
}
TYPED = (
    "id",
    "date_add(DATE '2026-11-01', CAST(id % 3 AS int)) AS day",
    "timestamp_micros(1700000000000000 + id * 1000001) AS at",
    "CAST(id / 7 AS decimal(12,3)) AS price",
    "IF(id % 5 = 0, NULL, array(CAST(id AS string), NULL)) AS tags",
    "IF(id % 4 = 0, NULL, CAST(CAST(id AS string) AS binary)) AS blob",
)
WITH_STATE = ("counted", "changing")
IDS_OVER_CONNECT = {FORMAT: "2", PROVIDER: ROCKSDB, CHANGELOG: "true"}
"""start() does not set them there."""
ICEBERG_TABLE = "shop.rows"
Spec = dict[str, Any]


def main(spec: Spec) -> None:
    said: dict[str, Any] = {}
    try:
        said = live(session(spec), spec)
    except Exception as error:  # it is what the query's user sees
        said = {"error": type(error).__name__, "code": getattr(error, "code", "")}
        said["text"] = str(error)
    Path(spec["said"]).write_text(json.dumps(said))


def session(spec: Spec) -> SparkSession:
    settings = {"spark.sql.shuffle.partitions": "2", **spec.get("session", {})}
    if not spec.get("connect"):
        spark = exactum.local_session("smoke", master="local[2]", **settings)
        spark.sparkContext.setLogLevel("ERROR")
        return spark
    builder = SparkSession.builder.remote("local[2]")
    if spec["frame"] in WITH_STATE:
        settings = {**IDS_OVER_CONNECT, **settings}
    if port := spec.get("port"):
        from pyspark.sql.connect.client.core import DefaultChannelBuilder

        settings["spark.connect.grpc.binding.port"] = port
        DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    settings["spark.jars"] = ",".join(map(str, local.spark_kafka_jars()))
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def live(spark: SparkSession, spec: Spec) -> dict[str, Any]:
    folder = Path(spec["folder"])
    rows = from_topic(spark, spec) if "format" in spec else from_files(spark, folder)
    made: DataFrame = getattr(Frames, spec["frame"])(rows, folder)
    letters, killer = spec.get("letters"), Killer(spec)
    once = getattr(exactum, spec.get("guarantee", "exactly_once"))(
        *sinks(spec, killer),
        dead_letters=exactum.KafkaSink(letters, bootstrap_servers=spec["servers"])
        if letters
        else None,
        decision_log=str(folder / "decisions") if "load" in spec else None,
        on_event=killer,
    )
    if "load" in spec:
        loaded = spark.range(spec["load"]).selectExpr(
            "id", f"CAST(id % {KEYS} AS string) AS k", "'v' AS v"
        )
        return {"written": once.write(loaded, id="numbers").written}
    mode = "update" if spec["frame"] in WITH_STATE else "append"
    goes_on = spec.get("endless") or spec.get("stop")
    trigger: Any = {"processingTime": "0 seconds"} if goes_on else {"availableNow": True}
    writer = made.writeStream.outputMode(mode).trigger(**trigger)
    query = once.start(writer, checkpoint=spec["checkpoint"], name="smoke")
    began_s = 0.0
    if stop := spec.get("stop"):
        await_true((folder / spec["after"]).exists, spec["after"])
        began_s = time.monotonic()
        query.stop(now=stop == "now")
    else:
        query.awaitTermination()
    if error := query.exception():
        raise error
    return {"active": query.isActive, "stop_s": time.monotonic() - began_s}


def from_files(spark: SparkSession, folder: Path) -> DataFrame:
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return stream.json(str(folder / "in"))


def from_topic(spark: SparkSession, spec: Spec) -> DataFrame:
    """With a policy for bad records."""
    kind, columns = FORMATS[spec["format"]]
    on_error = spec.get("on_error", "fail")
    records = by_spark(spark, spec) if "since" in spec else by_exactum(spark, spec)
    decoded = exactum.decode(records, kind(), exactum.String(), on_error=on_error)
    rows = decoded.selectExpr(*columns)
    if "view" in spec:
        by_exactum(spark, {**spec, "source": spec["view"]}).createOrReplaceTempView("others")
        others = ("CAST(NULL AS long)", "CAST(key AS string)", "CAST(value AS string)")
        rows = spark.table("others").selectExpr(*others).union(rows).toDF("id", "k", "v")
    return rows


def by_spark(spark: SparkSession, spec: Spec) -> DataFrame:
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spec["servers"])
    stream = stream.option("subscribe", spec["source"]).option("maxOffsetsPerTrigger", ROWS)
    return stream.option("startingTimestamp", spec["since"]).load()


def by_exactum(spark: SparkSession, spec: Spec) -> DataFrame:
    topic = spec["source"]
    end = {int(partition): offset for partition, offset in spec.get("end", {}).items()}
    return exactum.read_kafka(
        spark,
        topic,
        bootstrap_servers=spec["servers"],
        group_id=topic,
        stop={topic: end} if end else None,
        maxOffsetsPerTrigger=ROWS,
    )


# ---- what becomes of the rows --------------------------------------------------------------------


def sinks(spec: Spec, killer: Killer) -> Iterator[Any]:
    if "out" in spec:
        store = {"store": spec["store"]} if "store" in spec else {}
        yield exactum.FileSink(spec["out"], format="json", **store)
    if "topic" in spec:
        rows = as_records if spec["frame"] == "counted" else exactum.Rows(columns=RECORD)
        sink = Struck(spec["topic"], bootstrap_servers=spec["servers"], rows=rows)
        sink.killer = killer
        yield sink
    if "few" in spec:
        yield exactum.KafkaSink(spec["few"], bootstrap_servers=spec["servers"], rows=chosen)
    table = f"{spec['folder']}/table"
    if spec.get("table") == "delta":
        keys: Any = {"mode": "upsert", "key": "id"} if spec["frame"] == "upserted" else {}
        yield exactum.DeltaSink(table, **keys)
    elif spec.get("table") == "iceberg":
        parts = ["bucket(4, id)", "day(at)"]
        yield exactum.IcebergSink(
            ICEBERG_TABLE, catalog=spec["catalog"], partition_by=parts, sort_by="id"
        )
    elif spec.get("table") == "spark":
        writes = SparkWrites(Path(spec["folder"]), table, spec.get("kill_write", ""))
        yield exactum.SparkTableSink(writes, name="table")


def as_records(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(*RECORD)


def chosen(frame: DataFrame) -> DataFrame:
    return as_records(frame.where(f"k = '{CHOSEN}'"))


class Frames:
    """What the queries make of the rows."""

    @staticmethod
    def plain(rows: DataFrame, folder: Path) -> DataFrame:
        return rows

    @staticmethod
    def slow(rows: DataFrame, folder: Path) -> DataFrame:
        return rows.mapInArrow(Slow(folder / "tasks"), COLUMNS)

    @staticmethod
    def counted(rows: DataFrame, folder: Path) -> DataFrame:
        return rows.groupBy("k").count().selectExpr("count AS id", "k", "'n' AS v")

    @staticmethod
    def changing(rows: DataFrame, folder: Path) -> DataFrame:
        """Another result at each run of Python."""
        counts = rows.groupBy("k").count()
        return counts.selectExpr("count AS id", "k", f"'{os.getpid()}' AS v")

    @staticmethod
    def typed(rows: DataFrame, folder: Path) -> DataFrame:
        return rows.selectExpr(*TYPED)

    @staticmethod
    def upserted(rows: DataFrame, folder: Path) -> DataFrame:
        """The newest row of each key."""
        typed = rows.selectExpr(*TYPED)
        return typed.withColumn("id", typed.id % ROWS)


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


# ---- deaths --------------------------------------------------------------------------------------


class Killer:
    """Ends what ``whom`` says at the event: the driver with its JVM; over Spark Connect, where this
    is called in a worker of the server, the server or that worker.
    """

    def __init__(self, spec: Spec) -> None:
        self.at, _, self.how = spec.get("kill", "").partition("/")
        self.whom = spec.get("whom") or ("server" if spec.get("connect") else "driver")
        self.folder = Path(spec["folder"])
        self.calls: Counter[str] = Counter()

    def __call__(self, event: Any) -> None:
        self.reached(f"{type(event).__name__}:{getattr(event, 'batch_id', '')}")

    def around(self, step: str, call: Callable[[], object]) -> object:
        """A call of a participant."""
        answer = call()
        self.calls[step] += 1
        self.reached(f"{step}:{self.calls[step]}")
        return answer

    def reached(self, here: str) -> None:
        if here != self.at:
            return
        if self.how == "waits":
            (self.folder / "reached").touch()
            await_true((self.folder / "go").exists, "it may go on")
            return
        if self.how == "lost":
            raise OutcomeUnknown("the reply is lost")
        if self.whom == "driver":
            die(self.folder)
        if self.whom == "server":
            (self.folder / DYING).touch()
            os.kill(java_above(), signal.SIGKILL)
        os._exit(9)


class Struck(exactum.KafkaSink):
    """Whose participant's calls ``killer`` sees."""

    killer: Killer

    def open(self, *given: Any, **more: Any) -> Any:
        opened = super().open(*given, **more)
        if not self.killer.at[:1].islower():
            return opened
        return replace(opened, participant=interpose(opened.participant, self.killer.around))


def die(folder: Path) -> None:
    (folder / DYING).touch()
    os.killpg(0, signal.SIGKILL)


class SparkWrites:
    """Appends by Spark's own Delta; the driver dies before or after its second write."""

    def __init__(self, folder: Path, table: str, kill: str) -> None:
        self._folder, self._table, self._kill, self._calls = folder, table, kill, 0

    def __call__(self, frame: DataFrame, txn: Any) -> None:
        self._calls += 1
        if self._kill == "before" and self._calls == 2:
            die(self._folder)
        writer = frame.write.format("delta").mode("append")
        writer = writer.option("txnAppId", txn.app_id).option("txnVersion", txn.version)
        writer.save(self._table)
        if self._kill == "after" and self._calls == 2:
            die(self._folder)


def java_above() -> int:
    process = os.getpid()
    while process > 1:
        text = Path(f"/proc/{process}/stat").read_text()
        if "(java)" in text:
            return process
        process = int(text.rpartition(")")[2].split()[1])
    raise RuntimeError("no JVM above")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
