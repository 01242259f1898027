"""While an operator's command imports a script for its sinks, nothing in it may start Spark: a
script without a guard would run its query a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from pyspark import SparkContext

from exactum.errors import SettingRefused

_START = "_ensure_initialized"
"""What every way to a SparkContext calls before it starts the JVM."""


class _Refusal:
    """Stands where PySpark has that. ``place`` is what the command imports, as it was typed."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise SettingRefused(
            "SINKS_START",
            f"--sinks {self._place}: this script starts Spark when it is imported, and the command "
            "imports it for its sinks alone. Nothing was started.\n"
            "Put the start under if __name__ == '__main__': or the sinks in a module of their own.",
        )


@contextmanager
def no_start(place: str) -> Iterator[None]:
    """Meanwhile every start is refused: a query's of exactum's, and that of a SparkContext, without
    which there is no session.
    """
    before = SparkContext.__dict__[_START]
    setattr(SparkContext, _START, _Refusal(place))
    try:
        yield
    finally:
        setattr(SparkContext, _START, before)


def refuse_while_importing() -> None:
    """
    Raises:
        SettingRefused: a command imports the script for its sinks.
    """
    start = SparkContext.__dict__[_START]
    if isinstance(start, _Refusal):
        start()
