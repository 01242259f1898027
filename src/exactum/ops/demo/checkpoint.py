"""What a query's checkpoint folder shows of its progress to somebody who only looks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from exactum.checkpoint.layout import DECISIONS

_COMMIT = re.compile(r"\d+")
_RECORD = re.compile(r"\d{20}-\d+\.json")


class ShownCheckpoint:
    """A checkpoint of Spark, with exactum's decision log in it if it is exactum's. Threads may
    share it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._commits: set[str] = set()
        self._aborts: set[str] = set()

    @property
    def started(self) -> bool:
        """Whether the query has started for the first time: Spark writes this file then."""
        return (self.folder / "metadata").exists()

    def last_commit(self) -> int:
        """The last batch that Spark's own commit log calls done; -1 before the first."""
        return max((int(name) for name in _names(self.folder / "commits", _COMMIT)), default=-1)

    def last_record(self) -> str:
        """The name of the newest record in the decision log; empty before the first."""
        return max(_names(self.folder / DECISIONS, _RECORD), default="")

    def decided(self) -> int:
        """How many COMMIT records have been seen since the beginning (old ones are pruned from the
        folder).
        """
        decisions = self.folder / DECISIONS
        for name in _names(decisions, _RECORD):
            if name not in self._commits and name not in self._aborts:
                record = json.loads((decisions / name).read_text())
                (self._commits if record["decision"] == "commit" else self._aborts).add(name)
        return len(self._commits)


def _names(folder: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    yield from (name for name in names if pattern.fullmatch(name))
