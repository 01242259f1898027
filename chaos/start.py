"""One start of a query by a driver process: what that is told, and what it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLAIN = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""What Spark calls an exception of Python code on the driver."""
SPARKS = ("Py4JJavaError", "SparkException", "pyspark.errors")
"""In its text, where it came out of a Spark job: a task of Spark's own failed."""


@dataclass(frozen=True)
class Start:
    """``spec``: of ``tests.kit.crash.job``, over the bank's query."""

    spec: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return Path(self.spec["folder"])

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def stop(self) -> None:
        (self.folder / "stop").touch()

    @property
    def result(self) -> Result | None:
        """How it ended, if it has."""
        path = self.folder / "result"
        return Result(**json.loads(path.read_text())) if path.exists() else None


@dataclass(frozen=True)
class Result:
    """``outcome``: finished, stopped or failed; then ``error`` is exactum's error by name, empty if
    it was another.
    """

    outcome: str
    error: str = ""
    message: str = ""

    @property
    def kind(self) -> str:
        """Whose error it was: exactum's by its name, ``Spark``, or ``Python``: a plain exception
        out of foreachBatch, which is a defect of exactum, or of the harness."""
        by_spark = PLAIN not in self.message or any(word in self.message for word in SPARKS)
        return self.error or ("Spark" if by_spark else "Python")


def appear(path: Path, content: Mapping[str, Any]) -> None:
    """Create a file that nobody sees half written."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.write_text(json.dumps(content))
    hidden.rename(path)
