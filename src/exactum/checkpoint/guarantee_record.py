"""Which batches of a query ran under ``at_least_once``, which records no decisions.

    <checkpoint>/exactum/guarantees/<k>.json
        {"version": 1, "query_id": ..., "guarantee": "at least once", "batch_id": 7}

A run writes one before it writes anything, where the run before had decisions and it has none, or
the other way round. No file: all batches have decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.layout import GUARANTEES
from exactum.checkpoint.record_folder import VERSION, FolderFiles, RecordFiles, numbers
from exactum.protocol.sink import Guarantee


@dataclass(frozen=True)
class Stretch:
    """Batches under ``at_least_once``: from ``first`` on, up to before ``end``; None: to the last
    one that there is.
    """

    first: int
    end: int | None = None

    def __contains__(self, batch_id: int) -> bool:
        return self.first <= batch_id and (self.end is None or batch_id < self.end)


@dataclass(frozen=True)
class Stretches:
    """All of a query, in the order in which they began."""

    each: tuple[Stretch, ...] = ()

    def __contains__(self, batch_id: int) -> bool:
        return any(batch_id in stretch for stretch in self.each)


@dataclass(frozen=True)
class GuaranteeRecord:
    """The record of one query. A fork has another query id, and no part in its origin's."""

    files: RecordFiles
    query_id: str

    @staticmethod
    def of(checkpoint: Path, query_id: str) -> GuaranteeRecord:
        """In a checkpoint on a local or shared file system."""
        return GuaranteeRecord(FolderFiles(checkpoint / GUARANTEES), query_id)

    def stretches(self) -> Stretches:
        """
        Raises:
            CheckpointRefused: a file is damaged or of a newer version.
        """
        values = [self.files.read(f"{number}.json") for number in numbers(self.files)]
        return _stretches(
            (int(value["batch_id"]), value["guarantee"] == Guarantee.AT_LEAST_ONCE.value)
            for value in values
            if value["query_id"] == self.query_id
        )

    def begin(self, guarantee: Guarantee, batch_id: int) -> None:
        """A run under this guarantee begins with the batch. Idempotent.

        Raises:
            CheckpointRefused: the folder may not be written, or a file in it is damaged.
            Unavailable: the file could not be written: a full disk.
        """
        value = {
            "version": VERSION,
            "query_id": self.query_id,
            "guarantee": guarantee.value,
            "batch_id": batch_id,
        }
        while self._is_at_least_once() != (guarantee is Guarantee.AT_LEAST_ONCE):
            number = max(numbers(self.files), default=-1) + 1
            self.files.create(f"{number}.json", value)

    def _is_at_least_once(self) -> bool:
        """Whether the last run was."""
        each = self.stretches().each
        return bool(each) and each[-1].end is None


def _stretches(begun: Iterable[tuple[int, bool]]) -> Stretches:
    """From batches with which runs began, and whether these were without decisions."""
    found: list[Stretch] = []
    for batch_id, is_at_least_once in begun:
        is_open = bool(found) and found[-1].end is None
        if is_at_least_once and not is_open:
            found.append(Stretch(batch_id))
        elif is_open and not is_at_least_once:
            found[-1] = Stretch(found[-1].first, max(batch_id, found[-1].first))
    return Stretches(tuple(found))
