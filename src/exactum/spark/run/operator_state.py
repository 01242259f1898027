"""The state of one stateful operator, and whether the version of it that a batch has left is the
one that was decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from exactum.checkpoint import offset_log
from exactum.spark.jvm.state_operator import StateOperator
from exactum.spark.run.state_version import Sealed, VersionFile, sealed


class NotWhole(Exception):
    """The state that belongs to an epoch is not all there, or nobody can tell."""


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

    def with_ids(
        self, files: Iterable[VersionFile], ids: list[list[str]] | None
    ) -> list[tuple[int, str]]:
        """The stores (partition, name) whose versions have these ids, whatever else was written
        since; in checkpoint format 2.

        Raises:
            NotWhole: one is missing or empty, or the record has no ids.
        """
        if ids is None:
            raise NotWhole(f"its record does not name the state of operator {self.operator_id}")
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
        return [(found[one].partition, found[one].store) for one in wanted]

    def sealed(self) -> Sealed | None:
        """The version that the batch has left, in format 1 (``state_version.sealed``); None where
        the state is not on this machine, and to look at each file would cost too much.

        Raises:
            OSError: a folder or a file could not be looked at.
        """
        folder = offset_log.local_folder(self.folder)
        return None if folder is None else sealed(folder, self.version + 1, self.partitions)

    def unchanged(self, seal: str | None) -> list[tuple[int, str]]:
        """The stores whose files are as they were when the epoch was decided; in format 1.

        Raises:
            NotWhole: they are not, or the record has no seal.
        """
        now = self.sealed()
        if seal is None or now is None:
            raise NotWhole(
                "in checkpoint format 1 nobody can tell here whether it was written again since "
                "(format 2 can: docs/state.md)"
            )
        if now.seal != seal:
            raise NotWhole(
                f"{self.folder} was written since, or lost a file: the batch's frame was computed "
                "besides exactum's call (count(), isEmpty(), show()), or the checkpoint was copied"
            )
        return now.stores
