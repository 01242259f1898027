"""A stateful query over files, which dies between the sinks' commit and Spark's commit log, and what
it shows: output, watermarks, and state as Spark's own reader has it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum import events
from exactum.spark.settings import FORMAT, PLAIN, PROVIDER, WITH_IDS
from tests.kit.spark.commit_log import notes
from tests.kit.spark.ended import ended
from tests.kit.spark.files import InputFiles, lines_in, stream_of

EPOCHS = 5
"""With input. With a watermark there is one more, without."""
DIES_AT = 2

FORMAT_1 = {FORMAT: PLAIN}
FORMAT_2 = {FORMAT: WITH_IDS}
IN_MEMORY = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
}
_CLOCK = re.compile(r"\b1(?!70)\d{12}\b")
"""A moment by the clock; those of the rows are of 2023."""

Sinks = Callable[[Path], dict[str, Any]]


def lose_version(checkpoint: Path, version: int) -> None:
    """Of the state, as a power cut does: what one store has of it is empty, changes and snapshot,
    and Hadoop's checksums, which would tell, are gone.
    """
    left = sorted((checkpoint / "state").rglob(f"{version}[._]*"))
    left += sorted((checkpoint / "state").rglob(f".{version}[._]*"))
    assert left
    for path in left:
        if path.name.startswith("."):
            path.unlink()
        elif path.parent == left[0].parent:
            path.write_bytes(b"")


class DiedHere(Exception):
    """Between the sinks' commit and Spark's commit log."""


def into_a_folder(folder: Path) -> dict[str, Any]:
    return {"sinks": [exactum.FileSink(folder / "out", format="json")]}


class Stream:
    """Rows (key, number, at) in files, one for each epoch, through a query into a folder."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        make: Callable[[DataFrame], DataFrame],
        mode: str,
        named: Callable[[Path], str] = str,
        sinks: Sinks = into_a_folder,
        **settings: Any,
    ) -> None:
        """``named``: the checkpoint's folder as Spark is told it. ``sinks``: of a folder of theirs,
        ``sinks`` and what else ``exactly_once`` is given; as are ``settings``."""
        self.spark, self.folder, self.make, self.mode = spark, folder, make, mode
        self.checkpoint = folder / "checkpoint"
        self.location, self.sinks, self.settings = named(self.checkpoint), sinks, settings
        self.events: list[Any] = []
        files = InputFiles(folder / "input")
        for epoch in range(EPOCHS):
            files.give(
                {"key": f"k{n % 3}", "number": 10 * epoch + n, "at": at(epoch, n)} for n in range(6)
            )

    def live(
        self,
        die_at: int | None = None,
        before: Callable[[], None] = lambda: None,
        besides: Callable[[DataFrame], object] = lambda frame: None,
    ) -> None:
        """One life over all input, which ends when epoch ``die_at`` stands. ``besides`` is what the
        function does with the frame before it calls exactum."""
        before()
        given = {**self.sinks(self.folder), **self.settings}
        exact = exactum.exactly_once(*given.pop("sinks"), on_event=self.events.append, **given)
        died = []

        write = exact.for_each_batch(checkpoint=self.location)

        def each_batch(frame: DataFrame, batch_id: int) -> None:
            besides(frame)
            write(frame, batch_id)
            if batch_id == die_at:
                died.append(batch_id)
                raise DiedHere

        schema = "key string, number long, at timestamp"
        rows = stream_of(self.spark, self.folder / "input", schema)
        writer = self.make(rows).writeStream.foreachBatch(each_batch).outputMode(self.mode)
        writer = writer.option("checkpointLocation", self.location).trigger(availableNow=True)
        with in_format_2(self.spark):
            query = writer.start()
        error = ended(lambda: query)
        if error is not None and ("DiedHere" not in str(error) or not died):
            raise error
        assert died == ([] if die_at is None else [die_at]), "the query never came to this epoch"

    def output(self, name: str = "out") -> list[str]:
        return sorted(lines_in(self.folder / name))

    def watermarks(self) -> list[Any]:
        logged = notes(self.checkpoint)
        return [
            json.loads(note.read_text().splitlines()[1])["nextBatchWatermarkMs"] for note in logged
        ]

    def state(self) -> list[str]:
        """Of every operator and store, as Spark's own reader shows it."""
        found: list[str] = []
        spark = of_format_2(self.spark)
        described = spark.read.format("state-metadata").load(str(self.checkpoint)).collect()
        for one in described:
            options = {"operatorId": one.operatorId}
            if one.stateStoreName != "default":
                options["storeName"] = one.stateStoreName
            parts = [options]
            if one.operatorName.startswith("transformWithState"):
                variables = ("total", "numbers", "by_digit")
                parts = [{**options, "stateVarName": name} for name in variables]
                parts.append({**options, "readRegisteredTimers": "true"})
            for part in parts:
                rows = (
                    spark.read.format("statestore")
                    .options(**part)
                    .load(str(self.checkpoint))
                    .collect()
                )
                found.extend(
                    f"{one.operatorId} {one.stateStoreName} {_CLOCK.sub('...', str(row))}"
                    for row in rows
                )
        return sorted(found)

    def kept(self, at: int = DIES_AT, deaths: int = 1) -> bool:
        """Whether epoch ``at`` was redelivered in each life after a death, and not written
        again."""
        redelivered = [e.batch_id for e in self.events if isinstance(e, events.EpochRedelivered)]
        completed = [e.batch_id for e in self.events if isinstance(e, events.EpochCompleted)]
        return redelivered == [at] * deaths and completed.count(at) == 1


def at(epoch: int, number: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1_700_000_000 + 10 * epoch + number))


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """A session with these settings, which the queries that start meanwhile take over."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def in_format_2(spark: SparkSession) -> AbstractContextManager[None]:
    """As a platform has to set it that starts a query with state; unless the test sets it."""
    return configured(spark, FORMAT_2 if spark.conf.get(FORMAT, None) is None else {})


def of_format_2(spark: SparkSession) -> SparkSession:
    """A session of its own, in which Spark reads and changes state of checkpoint format 2."""
    own = spark.newSession()
    for key, value in FORMAT_2.items():
        own.conf.set(key, value)
    return own


@dataclass(frozen=True)
class Shown:
    """What a query shows at its end."""

    output: list[str]
    watermarks: list[Any]
    state: list[str]

    @staticmethod
    def of(stream: Stream) -> Shown:
        has_state = (stream.checkpoint / "state").exists()
        return Shown(stream.output(), stream.watermarks(), stream.state() if has_state else [])
