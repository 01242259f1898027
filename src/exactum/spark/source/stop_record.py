"""Which stop a source had in which batch, so that what a batch left out past its stop is known.

    <checkpoint>/exactum/source/<n>/stops/<k>.json
        {"version": 1, "given": "latest", "offsets": {"orders": ...}, "batch_id": 7, "attempt": 1}

It is written before anything of the batch is, so a stop that cut a batch is always on record. It
counts if that batch stands. Of two for one batch the later one counts: an attempt begins only when
those before it are void. Files without ``batch_id`` are of exactum 0.1.0, which wrote them after
the batch stood; they always count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import SOURCES
from exactum.checkpoint.partition_offsets import from_json, to_json
from exactum.errors import Fenced
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.record import VERSION, create_file, listed, read_file
from exactum.spark.source.source_options import Stop


@dataclass(frozen=True)
class StopRecord:
    """The stops of one source, below ``folder``. Read and written by the driver alone."""

    folder: Path

    @staticmethod
    def of(checkpoint: Path | None, source: RunningSource) -> StopRecord | None:
        """The record in a checkpoint's folder; None where the checkpoint lies in no folder."""
        if checkpoint is None or source.metadata is None:
            return None
        return StopRecord(checkpoint / SOURCES / source.metadata.rpartition("/")[2] / "stops")

    def stop(self, batch_id: int) -> Stop | None:
        """The stop that the source had last, up to this batch, which stands; None: it had none.

        Raises:
            CheckpointRefused: a file is damaged or of a newer version.
        """
        for number in reversed(self._numbers()):
            value = self._read(number)
            if value.get("batch_id", -1) <= batch_id:
                return _stop_in(value)
        return None

    def next_number(self) -> int:
        """The number that the next file has. To be asked before older runs are fenced: what such a
        run writes late is then not the newest.
        """
        return max(self._numbers(), default=-1) + 1

    def add(self, number: int, stop: Stop | None, *, batch_id: int, attempt: int) -> None:
        """From this batch on the source has this stop, or none. ``number`` is as ``next_number``
        said it when the run began.

        Raises:
            Fenced: a later attempt at the batch is on record.
            CheckpointRefused: the folder may not be written, or a file in it is damaged.
            Unavailable: the file could not be written: a full disk.
        """
        newest = max(self._numbers(), default=None)
        if stop is None:
            value = None if newest is None else self._read(newest)
            if value is None or (value["given"] is None and value.get("batch_id", -1) <= batch_id):
                return  # it never had one, or has none any more
        value = {
            "version": VERSION,
            "given": None if stop is None else stop.given,
            "offsets": {} if stop is None else json.loads(to_json(stop.offsets)),
            "batch_id": batch_id,
            "attempt": attempt,
        }
        while not create_file(self._path(number), value):
            other = self._read(number)
            if other.get("batch_id") == batch_id and other["attempt"] > attempt:
                raise Fenced(
                    f"Batch {batch_id}: another run of this query has taken over, and is at its "
                    f"attempt {other['attempt']}. This run stops; nothing of its own was written."
                )
            number += 1

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in listed(self.folder))

    def _read(self, number: int) -> dict[str, Any]:
        return read_file(self._path(number))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.json"


def _stop_in(value: dict[str, Any]) -> Stop | None:
    if value["given"] is None:
        return None
    return Stop(str(value["given"]), from_json(json.dumps(value["offsets"])))
