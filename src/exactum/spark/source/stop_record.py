"""Which stop a source had in which batch, so that what a batch left out past its stop is known.

    <checkpoint>/exactum/source/<n>/stops/<k>.json
        {"version": 1, "given": "latest", "offsets": {"orders": ...}, "left_out_from": {...},
         "batch_id": 7, "attempt": 1}

``offsets`` is the stop, ``left_out_from`` the first offset of each partition that was left out: the
same, or where the query was already when it was given the stop. Without it, it is the stop.

It is written before anything of the batch is, so a stop that cut a batch is always on record. It
counts if that batch stands. Of two for one batch the later one counts: an attempt begins only when
those before it are void. Files without ``batch_id`` are of exactum 0.1.0, which wrote them after
the batch stood; they always count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from exactum.checkpoint.layout import SOURCES
from exactum.checkpoint.partition_offsets import Offsets, from_json, to_json
from exactum.checkpoint.record_folder import VERSION, RecordFiles, numbers
from exactum.errors import Fenced
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.record_files import record_files
from exactum.spark.source.source_options import Stop

FIRST_ATTEMPT = 1
"""Of the run that begins a batch: slot 0 of the batch holds its fence."""


@dataclass(frozen=True)
class KeptStop:
    """A stop on record, and from where on each partition was left out because of it."""

    stop: Stop
    left_out_from: Offsets


@dataclass(frozen=True)
class StopRecord:
    """The stops of one source. Read and written by the driver alone."""

    files: RecordFiles

    @staticmethod
    def of(session: SparkSession, checkpoint: str, source: RunningSource) -> StopRecord | None:
        """The record in a checkpoint, whose root is as Spark prints it; None where Spark keeps
        nothing about the source either.
        """
        if source.metadata is None:
            return None
        below = SOURCES / source.metadata.rpartition("/")[2] / "stops"
        return StopRecord(record_files(session, checkpoint, below))

    def stop(self, batch_id: int) -> KeptStop | None:
        """The stop that the source had last, up to this batch, which stands; None: it had none.

        Raises:
            CheckpointRefused: a file is damaged or of a newer version.
        """
        for number in reversed(numbers(self.files)):
            value = self._read(number)
            if value.get("batch_id", -1) <= batch_id:
                return _stop_in(value)
        return None

    def next_number(self) -> int:
        """The number that the next file has. To be asked before older runs are fenced: what such a
        run writes late is then not the newest.
        """
        return max(numbers(self.files), default=-1) + 1

    def add(self, number: int, kept: KeptStop | None, *, batch_id: int, attempt: int) -> None:
        """From this batch on the source has this stop, or none. ``number`` is as ``next_number``
        said it when the run began.

        None is put on record where there was a stop, and where other runs have tried the batch:
        one of those may yet write its own.

        Raises:
            Fenced: a later attempt at the batch is on record.
            CheckpointRefused: the folder may not be written, or a file in it is damaged.
            Unavailable: the file could not be written: a full disk.
        """
        newest = max(numbers(self.files), default=None)
        if kept is None and attempt <= FIRST_ATTEMPT:
            value = None if newest is None else self._read(newest)
            if value is None or (value["given"] is None and value.get("batch_id", -1) <= batch_id):
                return  # it never had one, or has none any more
        value = {"version": VERSION, **_fields(kept), "batch_id": batch_id, "attempt": attempt}
        while not self.files.create(f"{number}.json", value):
            other = self._read(number)
            if other.get("batch_id") == batch_id and other["attempt"] > attempt:
                raise Fenced(
                    f"Batch {batch_id}: another run of this query has taken over, and is at its "
                    f"attempt {other['attempt']}. This run stops; nothing of its own was written."
                )
            number += 1

    def _read(self, number: int) -> dict[str, Any]:
        return self.files.read(f"{number}.json")


def _fields(kept: KeptStop | None) -> dict[str, Any]:
    if kept is None:
        return {"given": None, "offsets": {}}
    return {
        "given": kept.stop.given,
        "offsets": json.loads(to_json(kept.stop.offsets)),
        "left_out_from": json.loads(to_json(kept.left_out_from)),
    }


def _stop_in(value: dict[str, Any]) -> KeptStop | None:
    if value["given"] is None:
        return None
    offsets = from_json(json.dumps(value["offsets"]))
    left_out = value.get("left_out_from")
    return KeptStop(
        Stop(str(value["given"]), offsets),
        offsets if left_out is None else from_json(json.dumps(left_out)),
    )
