"""What a query's checkpoint folder shows of its progress to somebody who only looks."""

from __future__ import annotations

import json
import os
from pathlib import Path

from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.offset_log import folder_reader, parse
from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.files.slot_log import slot_name, slots


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
        return _last_number(self.folder / "commits")

    def last_offset(self) -> int:
        """The last batch whose end is in Spark's offset log; -1 before the first."""
        return _last_number(self.folder / "offsets")

    def read_up_to(self) -> Offsets:
        """The end of the last batch that is done, of all partitions of all Kafka sources. Empty
        before the first, and where Spark removes its files while they are read.
        """
        text = folder_reader(self.folder)(f"offsets/{self.last_commit()}")
        ends = () if text is None else parse(text, f"{self.folder}/offsets")
        return {at: offset for end in ends for at, offset in from_json(end).items()}

    def last_record(self) -> str:
        """The name of the newest record in the decision log; empty before the first."""
        return max(_records(self.folder / DECISIONS), default="")

    def decided(self) -> int:
        """How many COMMIT records have been seen since the beginning (old ones are pruned from the
        folder).
        """
        decisions = self.folder / DECISIONS
        for name in _records(decisions):
            if name not in self._commits and name not in self._aborts:
                record = json.loads((decisions / name).read_text())
                (self._commits if record["decision"] == "commit" else self._aborts).add(name)
        return len(self._commits)


def _records(decisions: Path) -> list[str]:
    return [slot_name(*slot) for slot in slots(_names(decisions))]


def _last_number(folder: Path) -> int:
    return max((int(name) for name in _names(folder) if name.isdigit()), default=-1)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
