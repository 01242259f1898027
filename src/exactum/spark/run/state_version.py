"""The files in which the state stores of one operator keep the version that a batch has left, on
any file system. In checkpoint format 2 each try of a task has an id of its own:

    <state>/<operator>/<partition>/[<store>/]8_<id>.changelog

Looks for this one version only: what came before was there when the batch began, and Spark rests on
it in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.state_store import DEFAULT, VERSION_FILE
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.jvm.state_operator import StateOperator


class NotWhole(Exception):
    """The state that belongs to an epoch is not all there."""


@dataclass(frozen=True)
class VersionFile:
    """One file of one version of one store."""

    partition: int
    store: str
    version_id: str


def stores_with_ids(
    session: SparkSession, operator: StateOperator, ids: Sequence[Sequence[str]] | None
) -> list[tuple[int, str]]:
    """The stores (partition, name) of an ``operator`` of the batch at hand whose next versions have
    these ``ids``, whatever else was written since.

    Raises:
        NotWhole: one is missing or empty, or the record has no ids.
        OSError: the local folder could not be read.
        JvmError: the JVM could not read the folder.
    """
    folder, version = f"{operator.location()}/{operator.operator_id()}", operator.version() + 1
    if ids is None:
        raise NotWhole(f"its record does not name the state of {folder}")
    found = {
        (file.partition, file.version_id): file for file in version_files(session, folder, version)
    }
    wanted = [(partition, one) for partition, own in enumerate(ids) for one in own]
    for partition, one in wanted:
        if (partition, one) not in found:
            raise NotWhole(f"{folder}/{partition} has no version {version} with the id {one}")
    partitions = operator.partitions()
    if len(ids) != partitions:
        raise NotWhole(f"{folder} has {partitions} partitions, and its record names {len(ids)}")
    return [(found[one].partition, found[one].store) for one in wanted]


def version_files(session: SparkSession, operator: str, version: int) -> Iterator[VersionFile]:
    """The files of ``version`` below the folder ``operator``, a URI as Spark prints it, that are
    not empty. Raises as ``stores_with_ids``.
    """
    patterns = f"[0-9]*/{version}[._]*", f"[0-9]*/*/{version}[._]*"
    folder = local_folder(operator)
    # The whole of a version in two calls of the file system. In a local folder's own name Hadoop
    # would take brackets for a pattern.
    found = (
        HadoopFiles(session, operator).like(patterns)
        if folder is None
        else ((str(p), p.stat().st_size) for each in patterns for p in folder.glob(each))
    )
    for path, size_bytes in found:
        *_, above, inner, name = path.split("/")
        match = VERSION_FILE.fullmatch(name)
        partition, store = (inner, DEFAULT) if inner.isdigit() else (above, inner)
        if match is not None and size_bytes and partition.isdigit():
            yield VersionFile(int(partition), store, match[2] or "")
