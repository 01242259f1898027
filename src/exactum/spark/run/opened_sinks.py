"""A run's sinks, checked and opened, and the writing of one frame into all of them, each its view
of it: by an epoch of a query as by a batch load.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import FrameRefused
from exactum.protocol import resolve
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.participants import Parallel, all_at_once
from exactum.protocol.sink import (
    DEAD_LETTERS,
    Committed,
    OpenSink,
    QueryRun,
    TaskName,
    WriteOrder,
    Writer,
    nothing_committed,
)
from exactum.spark.arguments import Targets
from exactum.spark.query import Batch
from exactum.spark.run.refusals import refuse_shared_targets
from exactum.spark.write.dead_letter import DeadLetterPlan, Rejections
from exactum.spark.write.view import SideBySide, View, read_once, refuse_other_columns, views
from exactum.spark.write.write_job import Jobs, WriteJob, drain
from exactum.spark.write.write_task import Fingerprint, WriteTask, abort, prepare

Columns = tuple[tuple[str, str], ...]
"""(name, Spark's simple type string) of what a sink writes."""


class OpenedSinks:
    """Opens each sink of ``targets`` for ``columns``, at the same time where there are several.

    If one fails, the others are closed. ``each`` are the participants' names and the open sinks, in
    order. ``committed``: see ``QueryRun``; asked by one sink at a time.

    Raises:
        FrameRefused: a target cannot take its columns.
        SettingRefused: a sink's settings cannot hold the guarantee; or two sinks write to one
            target.
        Unavailable: a target did not answer.
    """

    def __init__(
        self,
        targets: Targets,
        run: QueryRun,
        columns: Sequence[Columns],
        committed: Committed = nothing_committed,
    ) -> None:
        self.targets = targets
        self.columns = tuple(columns)
        count = len(targets.all())
        self._threads = ThreadPoolExecutor(count, "exactum-sink") if count > 1 else None
        self.each: tuple[tuple[str, OpenSink], ...] = ()
        try:
            self.each = tuple(self._opened(replace(run, committed=in_turn(committed))))
            refuse_shared_targets(targets, self.each)
        except BaseException:
            self.close()
            raise

    @property
    def participants(self) -> list[Participant]:
        return [sink.participant for _, sink in self.each]

    @property
    def timeouts_ms(self) -> dict[str, int]:
        """How long a transaction may be open, by sink, where its target sets a limit to that."""
        return {name: sink.timeout_ms for name, sink in self.each if sink.timeout_ms is not None}

    @cached_property
    def dead_letters(self) -> DeadLetterPlan | None:
        dead_letters = self.targets.dead_letters
        if dead_letters is None:
            return None
        sink = self.each[-1][1]
        names = (name for name, _ in dead_letters.dead_letter_columns if name not in sink.left_out)
        return DeadLetterPlan(sink.writers, tuple(names))

    @property
    def parallel(self) -> Parallel[Any, Any]:
        """Calls participants, all at once where there are several."""
        return all_at_once(self._threads)

    def close(self) -> None:
        """Close the participants, where no protocol has them, and let the threads go.
        Idempotent.
        """
        for participant in self.participants:
            participant.close()
        self.release_threads()

    def release_threads(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def _opened(self, run: QueryRun) -> list[tuple[str, OpenSink]]:
        names = self.targets.names()
        each = list(zip(self.targets.all(), names, self.columns, strict=True))
        if self._threads is None:
            return [(name, sink.open(run, name, own)) for sink, name, own in each]
        futures = [self._threads.submit(sink.open, run, name, own) for sink, name, own in each]
        errors = [
            error for error in (future.exception() for future in futures) if error is not None
        ]
        if errors:
            for future in futures:
                if future.exception() is None:
                    future.result().participant.close()
            raise errors[0]
        return [(name, future.result()) for name, future in zip(names, futures, strict=True)]


def in_turn(committed: Committed) -> Committed:
    """A decision log is for one thread at a time."""
    lock = threading.Lock()

    def asked() -> Sequence[PreparedTransaction]:
        with lock:
            return committed()

    return asked


def check_columns(frame: DataFrame, targets: Targets) -> tuple[Columns, ...]:
    """What each of ``targets.all()`` writes, which it has been asked whether it can.

    Raises:
        FrameRefused: two columns share a name, or a sink cannot write its view of the frame.
    """
    found: dict[int, Columns] = {}
    for view in views(targets.sinks):
        columns = tuple(view.columns(frame))
        names = [name for name, _ in columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FrameRefused(
                "COLUMN_TWICE",
                f"The frame has more than one column named {', '.join(twice)}; nobody can tell "
                f"which one is meant. Rename or drop one of: {', '.join(names)}. Nothing was "
                "written.",
            )
        for place in view.sinks:
            targets.sinks[place].check_columns(columns)
            found[place] = columns
    if targets.dead_letters is not None:
        found[len(targets.sinks)] = tuple(targets.dead_letters.dead_letter_columns)
        targets.dead_letters.check_columns(targets.dead_letters.dead_letter_columns)
    return tuple(found[place] for place in range(len(found)))


class _ViewJob:
    """Of several ``views`` that are declared, or of one function."""

    def __init__(self, views: Sequence[View], sinks: OpenedSinks, write: WriteJob) -> None:
        self.write = write
        self._view = views[0]
        columns = [sinks.columns[view.sinks[0]] for view in views]
        self._columns = columns[0]
        self._sinks = [sinks.each[place][0] for view in views for place in view.sinks]
        names = [[name for name, _ in own] for own in columns]
        self._together = SideBySide(views, names) if len(views) > 1 else None

    def frame(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """What is written of the batch.

        Raises:
            FrameRefused: a function gives other columns than of the run's first batch.
        """
        if self._together is not None:
            return self._together.of(batch)
        if self._view.rows is None:
            return batch
        frame = self._view.of(batch)
        if not self._view.is_declared:
            refuse_other_columns(frame, self._columns, self._sinks, batch_id)
        return frame


class EpochWrite:
    """Writes the frames of one run into its ``sinks``: one job for all that see the batch, or
    declare what they see of it, and one for each function of ``rows=``.

    ``count_once``: the rows of a batch are computed once, whatever a function does with them.
    ``by_user``: the batch comes through a function of the user's.
    ``hashed``: its fingerprint is asked for. It is had where a sink sees the whole batch, as which
    the first view comes: what ``rows`` makes of it may be another thing each time.

    ``fingerprint`` is that of the frame that was written last; None: of none, or it is not known.
    ``is_kept``: the user keeps rows of it, so that Spark may have counted too few.
    """

    def __init__(
        self,
        sinks: OpenedSinks,
        run: QueryRun,
        jobs: Jobs,
        *,
        hashed: bool,
        count_once: bool = False,
        by_user: bool = False,
    ) -> None:
        self.fingerprint: Fingerprint | None = None
        self.is_kept = False
        self._sinks = sinks
        seen = views(sinks.targets.sinks)
        declared = tuple(view for view in seen if view.is_declared)
        others = [(view,) for view in seen if not view.is_declared]
        self._count_once = count_once and bool(others)
        self._by_user = by_user or bool(others)
        self._jobs: list[_ViewJob] = []
        for some in filter(None, [declared, *others]):
            places = tuple(place for place, view in enumerate(some) for _ in view.sinks)
            own = [sinks.each[sink] for view in some for sink in view.sinks]
            task = WriteTask(
                tuple((name, sink.writers) for name, sink in own),
                run,
                sinks.dead_letters,
                places if len(some) > 1 else None,
                hashed and some[0].rows is None,
            )
            self._jobs.append(_ViewJob(some, sinks, jobs(task)))

    def write(
        self, frame: DataFrame, order: WriteOrder, batch: Batch | None = None
    ) -> list[PreparedTransaction]:
        """Write the batch into every sink, each its view of it, and return what is prepared then.
        Raises as ``WriteJob.run``, ``judged``, and what ``rows`` does.
        """
        if len(self._jobs) == 1 and not self._count_once:
            (job,) = self._jobs
            whole = job.frame(frame, order.batch_id)
            with self._reading_once(whole):
                # Rows that the user keeps, and may have looked at, are not read from Kafka again:
                # records may be gone meanwhile.
                written = [job.write.run(whole, order, None if self.is_kept else batch)]
        else:
            with self._reading_once(frame), read_once(frame) as kept:
                if batch is not None:
                    drain(kept)
                written = [
                    job.write.run(job.frame(kept, order.batch_id), order) for job in self._jobs
                ]
        self.fingerprint = written[0].fingerprint
        prepared = [one for some in written for one in some.prepared]
        sinks = self._sinks
        return judged(order, prepared, sinks.participants, sinks.dead_letters, sinks.parallel)

    @contextmanager
    def _reading_once(self, frame: DataFrame) -> Iterator[None]:
        if not self._by_user:
            yield
            return
        with self._jobs[0].write.reading_once(frame) as self.is_kept:
            yield


def judged(
    order: WriteOrder,
    prepared: Sequence[PreparedTransaction],
    participants: Sequence[Participant],
    dead_letters: DeadLetterPlan | None,
    parallel: Parallel[Any, Any],
) -> list[PreparedTransaction]:
    """What the epoch has prepared, without the rows of which only their target knows that it
    refuses them, and with the dead letters that these have become.

    Raises:
        RowsRefused: there are no dead letters, or they refuse them too, or they are too many.
        ExactumError: a target or the dead letters failed; nothing of the epoch is visible.
    """
    judging = {p.name: p for p in participants if p.judges and p.name != DEAD_LETTERS}
    if not judging:
        return list(prepared)
    found = [p for p in prepared if p.participant not in judging]
    own = {
        name: [p for p in prepared if p.participant == name]
        for name in judging
        if any(p.participant == name for p in prepared)
    }
    refused = Rejections(dead_letters, order, TaskName(0, 0, 0))
    writers: list[Writer] = []
    try:
        answers = parallel(lambda name: judging[name].judge(own[name]), list(own))
        for (name, asked), (kept, rejection) in zip(own.items(), answers, strict=True):
            resolve.require_same(name, "judged", asked, kept)
            found.extend(kept)
            if rejection is not None:
                refused.take(rejection, name, writers)
        return [*found, *prepare(writers)]
    except BaseException:
        abort(writers)
        raise
