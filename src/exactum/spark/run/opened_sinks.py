"""A run's sinks, checked and opened, and what calls several of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import FrameRefused
from exactum.protocol.participant import Participant
from exactum.protocol.participants import Parallel, all_at_once
from exactum.protocol.sink import OpenSink, QueryRun, WriterFactory
from exactum.spark.run.delivery import Targets
from exactum.spark.run.shared_places import refuse_shared_targets
from exactum.spark.write import view
from exactum.spark.write.write_task import DeadLetterPlan

Columns = tuple[tuple[str, str], ...]
"""(name, Spark's simple type string) of what a sink writes."""


class OpenedSinks:
    """Opens each sink of ``targets`` for ``columns``, at the same time where there are several.

    If one fails, the others are closed. ``each`` are the participants' names and the open sinks, in
    order.

    Raises:
        FrameRefused: a target cannot take its columns.
        SettingRefused: a sink's settings cannot hold the guarantee; or two sinks write to one
            target.
        Unavailable: a target did not answer.
    """

    def __init__(self, targets: Targets, run: QueryRun, columns: Sequence[Columns]) -> None:
        self.targets = targets
        self.columns = tuple(columns)
        count = len(targets.all())
        self._threads = ThreadPoolExecutor(count, "exactum-sink") if count > 1 else None
        self.each: tuple[tuple[str, OpenSink], ...] = ()
        try:
            self.each = tuple(self._opened(run))
            refuse_shared_targets(targets, self.each)
        except BaseException:
            self.close()
            raise

    @property
    def participants(self) -> list[Participant]:
        return [sink.participant for _, sink in self.each]

    @property
    def writers(self) -> list[tuple[str, WriterFactory]]:
        return [(name, sink.writers) for name, sink in self.each]

    @property
    def timeouts_ms(self) -> dict[str, int]:
        """How long a transaction may be open, by sink, where its target sets a limit to that."""
        return {name: sink.timeout_ms for name, sink in self.each if sink.timeout_ms is not None}

    def dead_letter_plan(self) -> DeadLetterPlan | None:
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


def check_columns(frame: DataFrame, targets: Targets) -> tuple[Columns, ...]:
    """What each of ``targets.all()`` writes, which it has been asked whether it can.

    Raises:
        FrameRefused: two columns share a name, or a sink cannot write its view of the frame.
    """
    found: dict[int, Columns] = {}
    for one in view.views(targets.sinks):
        columns = tuple(one.columns(frame))
        refuse_equal_names(columns)
        for place in one.sinks:
            targets.sinks[place].check_columns(columns)
            found[place] = columns
    if targets.dead_letters is not None:
        found[len(targets.sinks)] = tuple(targets.dead_letters.dead_letter_columns)
        targets.dead_letters.check_columns(targets.dead_letters.dead_letter_columns)
    return tuple(found[place] for place in range(len(found)))


def refuse_equal_names(columns: Sequence[tuple[str, str]]) -> None:
    """
    Raises:
        FrameRefused: two columns share a name.
    """
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FrameRefused(
            "COLUMN_TWICE",
            f"The frame has more than one column named {', '.join(twice)}; nobody can tell which "
            f"one is meant. Rename or drop one of: {', '.join(names)}. Nothing was written.",
        )
