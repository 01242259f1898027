"""Programs of pages and of examples/, run as they stand, in the session that the tests share."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from tests.kit.waiting import WAIT_MAX_S, await_true


def ran(program: str, **given: Any) -> dict[str, Any]:
    """The names that the program has made, to which ``given`` ones were known. Its ``query`` has
    read all that there was, and is stopped.
    """
    names: dict[str, Any] = {"__name__": "__main__", **given}
    exec(program, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    return names


def replaced(program: str, ours: Mapping[str, str]) -> str:
    """The program with each name of ``ours`` replaced; all of them have to be in it."""
    for name, other in ours.items():
        assert name in program, f"{name!r} is not in:\n{program}"
        program = program.replace(name, other)
    return program


def call(example: ModuleType, *arguments: str) -> None:
    """``main`` of an example, as its command line calls it."""
    before = sys.argv
    sys.argv = [str(example.__file__), *arguments]
    try:
        example.main()
    finally:
        sys.argv = before


@contextlib.contextmanager
def on_its_way(spark: SparkSession, example: ModuleType, *arguments: str) -> Iterator[None]:
    """An example that runs until it is stopped; it is, at the end, and must not have failed."""
    failures: list[BaseException] = []

    def live() -> None:
        try:
            call(example, *arguments)
        except BaseException as error:
            failures.append(error)

    life = threading.Thread(target=live, name=example.__name__)
    life.start()
    try:
        await_true(lambda: bool(spark.streams.active) or not life.is_alive(), "the query starts")
        yield
    finally:
        for query in spark.streams.active:
            query.stop()
        life.join(WAIT_MAX_S)
    assert failures == []
    assert not life.is_alive(), f"{example.__name__} did not end with its query"
