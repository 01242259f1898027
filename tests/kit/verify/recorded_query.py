"""A checkpoint as Spark and exactum leave it, made without Spark: real sinks, real coordinator, tasks
played here. For tests of the commands that read one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import structs

from exactum import FileSink
from exactum.checkpoint.layout import DECISIONS, STAGING
from exactum.checkpoint.query_place import QueryPlace, recorded_staging, staging_at
from exactum.checkpoint.query_record import KnownSink, record_of
from exactum.files.slot_log import SlotLog
from exactum.monitor.decisions import read_promises
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.ends import Noted
from exactum.protocol.inspection import Evidence
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Sink, WriteOrder
from exactum.protocol.weaker_guarantees import AtLeastOnce, AtMostOnce
from exactum.storage.folder import Folder
from exactum.testing.task_job import TaskJob
from tests.kit.staged_files import waiting
from tests.kit.transactions.given import give_always

Columns = Sequence[tuple[str, str]]
Tasks = Callable[[int], Sequence[Sequence[Any]]]
"""From a batch to what each of its tasks writes: Arrow record batches."""

PROTOCOLS = {
    Guarantee.EXACTLY_ONCE: Coordinator,
    Guarantee.AT_LEAST_ONCE: AtLeastOnce,
    Guarantee.AT_MOST_ONCE: AtMostOnce,
}


class DriverDied(BaseException):
    """The driver of a test dies at this point: nothing of the coordinator cleans up after it."""


class RecordedQuery:
    """One query and its checkpoint ``folder``. ``sinks`` by participant name, with the columns that
    each is given and what its tasks write; ``staging`` as a user gives it.
    """

    def __init__(
        self,
        folder: Path,
        sinks: Mapping[str, tuple[Callable[[], Sink], Columns, Tasks]],
        staging: Path | None = None,
    ) -> None:
        self.folder = folder
        self.staging = staging
        self.query_id = str(uuid.uuid4())
        self._sinks = sinks
        give_always(self.query_id, self.sinks)
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": self.query_id}))

    @property
    def files(self) -> Folder:
        """Its checkpoint, wherever a test has moved it."""
        return Folder(self.folder)

    def sinks(self) -> dict[str, Sink]:
        """As a command is given them."""
        return {name: make() for name, (make, _, _) in self._sinks.items()}

    def run(
        self,
        batches: Sequence[int],
        *,
        dies_after_decision: bool = False,
        dies_before_decision: bool = False,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        """One driver's life. It dies in its last batch, where it is told to; what its tasks left
        open stays so. It notes its guarantee as a run in Spark does.
        """
        staging = staging_at(self, self.staging)
        on_file = record_of(self.files, self.query_id)
        number = on_file.content.runs + 1
        run = QueryRun(self.query_id, new_incarnation(number), guarantee, staging, number)
        noted = on_file.content.noted
        if guarantee is Guarantee.EXACTLY_ONCE and (
            noted.first is None or noted.undecided_from is not None
        ):
            after = Noted(first=batches[0])
        elif guarantee is Guarantee.AT_LEAST_ONCE and noted.first is not None:
            after = replace(noted, undecided_from=noted.undecided_from or batches[0])
        else:
            after = noted
        opened = {n: make().open(run, n, columns) for n, (make, columns, _) in self._sinks.items()}
        sinks = tuple(KnownSink(name, dict(sink.trace)) for name, sink in opened.items())
        on_file.change(
            lambda record: structs.replace(
                record,
                sinks=sinks,
                noted=after,
                staging=recorded_staging(self, staging),
                runs=number,
            )
        )
        log = SlotLog(self.files.below(DECISIONS), self.query_id)
        last = batches[-1]

        def ready(order: WriteOrder) -> None:
            on_file.change(lambda record: structs.replace(record, log_id=log.log_id()))

        def decided(event: Any) -> None:
            if (
                dies_after_decision
                and type(event).__name__ == "EpochDecided"
                and event.batch_id == last
            ):
                raise DriverDied

        participants = [sink.participant for sink in opened.values()]
        protocol = PROTOCOLS[guarantee](run, participants, log, noted=noted, on_event=decided)
        try:
            for batch_id in batches:
                (self.folder / "offsets" / str(batch_id)).write_text("v1\n{}\n-\n")
                write = self._write(
                    opened, batch_id, dies=dies_before_decision and batch_id == last
                )
                protocol.run(batch_id, SourceOffsets(), write, ready)
                (self.folder / "commits" / str(batch_id)).write_text("v1\n{}\n")
        except DriverDied:
            pass
        finally:
            for sink in opened.values():
                sink.participant.close()

    def evidence(self, name: str, first: int | None = None) -> list[Evidence]:
        """What the sink's target says of each batch, from ``first`` on."""
        place = QueryPlace.of(self.folder)
        found = read_promises(place, first, None).each
        sink: Any = self.sinks()[name]
        with closing(sink.inspector(place.query_id, name, place.staging())) as inspector:
            return list(inspector.evidence(found, lambda: found))

    def staged(self) -> list[Path]:
        """The files that wait; see ``staged_files.waiting``."""
        return waiting(self.staging or self.folder / STAGING)

    def remove_staged(self) -> None:
        """Also what is kept of visible batches."""
        for path in (self.staging or self.folder / STAGING).rglob("*.staged"):
            path.unlink()

    def lose_decision(self, batch_id: int) -> dict[Path, bytes]:
        """Of its last batch, which Spark has not logged. What the log has lost."""
        (self.folder / "commits" / str(batch_id)).unlink()
        records = (self.folder / DECISIONS).glob(f"{batch_id:020d}-*")
        lost = {path: path.read_bytes() for path in records}
        for path in lost:
            path.unlink()
        return lost

    def _write(
        self, opened: Mapping[str, OpenSink], batch_id: int, *, dies: bool
    ) -> Callable[[WriteOrder], Sequence[PreparedTransaction]]:
        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            prepared: list[PreparedTransaction] = []
            for name, sink in opened.items():
                job = TaskJob(sink.writers, self._sinks[name][2](batch_id))
                prepared += job(order)
            if dies:
                raise DriverDied
            return prepared

        return write


def of_numbers(folder: Path) -> RecordedQuery:
    """Each of its batches writes its number into a file in the folder ``out``."""

    def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
        return [[pa.record_batch({"n": pa.array([batch_id], pa.int64())})]]

    sink = lambda: FileSink(str(folder / "out"), format="json")  # noqa: E731
    return RecordedQuery(folder / "checkpoint", {"files": (sink, (("n", "bigint"),), tasks)})
