"""The state of one stateful operator, and whether the version of it that a batch has left is
whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from exactum.checkpoint import offset_log
from exactum.checkpoint.state_store import Vanished, stores
from exactum.errors import CheckpointRefused
from exactum.spark.jvm.state_operator import StateOperator
from exactum.spark.run.state_version import VersionFile, seal


class NotWhole(Exception):
    """The state that belongs to an epoch is not all there."""


@dataclass(frozen=True)
class OperatorState:
    """The state of an ``operator`` of a batch's plan: the folder of all state, the operator's
    number, the version that the batch at hand began with, and how many partitions have state."""

    operator: StateOperator
    location: str
    operator_id: int
    version: int
    partitions: int

    @classmethod
    def of(cls, operator: StateOperator) -> OperatorState:
        return cls(
            operator,
            operator.location(),
            operator.operator_id(),
            operator.version(),
            operator.partitions(),
        )

    def at(self, operator: StateOperator) -> OperatorState:
        """The same operator in the plan of another batch. One call of the JVM instead of five."""
        return replace(self, operator=operator, version=operator.version())

    @property
    def folder(self) -> str:
        return f"{self.location}/{self.operator_id}"

    def with_ids(self, files: Iterable[VersionFile], ids: list[list[str]]) -> list[VersionFile]:
        """Of ``files`` those with these ids: the versions that belong to the epoch, whatever else
        was written since.

        Raises:
            NotWhole: one is missing or empty.
        """
        found = {(file.partition, file.version_id): file for file in files if file.size_bytes}
        wanted = [
            (partition, one) for partition, of_partition in enumerate(ids) for one in of_partition
        ]
        for partition, one in wanted:
            if (partition, one) not in found:
                raise NotWhole(
                    f"{self.folder}/{partition} has no version {self.version + 1} with the id {one}"
                )
        if len(ids) != self.partitions:
            raise NotWhole(
                f"{self.folder} has {self.partitions} partitions, and its record names {len(ids)}"
            )
        return [found[one] for one in wanted]

    def seal(self) -> str | None:
        """Of the version that the batch has left, in format 1 (``state_version.seal``); None where
        the state is not on this machine, and to look at each file would cost too much.

        Raises:
            OSError: a folder or a file could not be looked at.
        """
        folder = offset_log.local_folder(self.folder)
        return None if folder is None else seal(folder, self.version + 1, self.partitions)

    def unchanged(
        self, files: Iterable[VersionFile], sealed: str | None, decided_ms: int
    ) -> list[VersionFile]:
        """One of ``files`` for each store, none of them written after the decision: by the seal
        that was recorded with it, else by the clock.

        Raises:
            NotWhole: a store has none, or its version was written again since.
        """
        found: dict[tuple[int, str], VersionFile] = {}
        for file in files:
            if not file.size_bytes:
                raise NotWhole(f"{file.path} is empty")
            # A snapshot may come later: it is made of the changes, beside the epochs.
            if file.is_change or (file.partition, file.store) not in found:
                found[file.partition, file.store] = file
        rewritten = (
            [file.path for file in found.values() if file.written_ms > decided_ms]
            if sealed is None
            else [self.folder] * (self.seal() != sealed)
        )
        if rewritten:
            raise NotWhole(
                f"{rewritten[0]} was written since: the batch's frame was computed besides "
                "exactum's call (count(), isEmpty(), show()), or the checkpoint was copied"
            )
        names = [
            {store for partition, store in found if partition == each}
            for each in range(self.partitions)
        ]
        if not names[0] or any(each != names[0] for each in names):
            raise NotWhole(
                f"not every partition of {self.folder} has version {self.version + 1} of its stores"
            )
        self._refuse_holes()
        return list(found.values())

    def _refuse_holes(self) -> None:
        """What the version rests on may be gone after a power cut, where the files are on this
        machine.

        Raises:
            NotWhole: a file of an earlier version is missing or empty.
        """
        folder = offset_log.local_folder(self.folder)
        if folder is None:
            return
        try:
            for store in stores(folder):
                if store.partition < self.partitions:
                    files = store.files(self.version + 1)
                    if files is None or any(path.stat().st_size == 0 for path in files):
                        raise NotWhole(
                            f"{store.folder} has no version {self.version + 1}, or not all of it"
                        )
        except (Vanished, CheckpointRefused, OSError) as error:
            raise NotWhole(str(error)) from error
