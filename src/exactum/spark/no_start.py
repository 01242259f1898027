"""While an operator's command imports a script for its sinks, nothing in it may start Spark: a
script without a guard would run its query a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark import SparkContext

from exactum.errors import SettingRefused

_importing: list[str] = []
"""The place that a command imports, as it was typed."""


@contextmanager
def no_start(place: str) -> Iterator[None]:
    """Meanwhile every start is refused: a query's of exactum's, and that of a SparkContext, without
    which there is no session.
    """

    def refuse(*_: Any, **__: Any) -> NoReturn:
        _refuse(place)

    name = "_ensure_initialized"  # what every way to a SparkContext calls before it starts the JVM
    before = SparkContext.__dict__[name]
    _importing.append(place)
    setattr(SparkContext, name, refuse)
    try:
        yield
    finally:
        setattr(SparkContext, name, before)
        _importing.pop()


def refuse_while_importing() -> None:
    """
    Raises:
        SettingRefused: a command imports the script for its sinks.
    """
    if _importing:
        _refuse(_importing[-1])


def _refuse(place: str) -> NoReturn:
    raise SettingRefused(
        "SINKS_START",
        f"--sinks {place}: this script starts Spark when it is imported, and the command imports "
        "it for its sinks alone. Nothing was started.\n"
        "Put the start under if __name__ == '__main__': or the sinks in a module of their own.",
    )
