"""Files of JSON lines: a stream of which each one is a micro-batch, and what sinks have written."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class InputFiles:
    """A folder of them; the oldest is the first micro-batch."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.count = 0
        self._began_s = time.time() - 10_000

    def give(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """One more, at once."""
        hidden = self.folder / f".{self.count:04}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (self._began_s + self.count,) * 2)  # Spark takes them by age
        hidden.rename(self.folder / f"{self.count:04}.json")
        self.count += 1


def stream_of(spark: SparkSession, folder: Path | str, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def mounted(spark: SparkSession, folder: Path) -> str:
    """The folder in a file system that only Hadoop knows, as it may know an object store."""
    name = f"mounted{secrets.token_hex(4)}"  # Hadoop remembers what it has mounted
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(f"fs.viewfs.mounttable.{name}.linkFallback", folder.as_uri())
    return f"viewfs://{name}"


def lines_in(folder: Path) -> list[str]:
    """What a sink has written there, whatever its partitions."""
    files = sorted(folder.rglob("part-*"))
    return [line for file in files for line in file.read_text().splitlines()]


def rows_in(folder: Path) -> list[Any]:
    return [json.loads(line) for line in lines_in(folder)]
