"""Verifies a query: its records, and what each sink has of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import ExactumError, SettingRefused
from exactum.ops.targets.inspection import inspector_of
from exactum.ops.targets.target import QueryTargets, Target
from exactum.ops.verify.promise import Promises, SparkProgress, promises
from exactum.protocol.inspection import Evidence, Finding, Promise, counts, unknowable
from exactum.protocol.participant import remembers
from exactum.protocol.resolve import commit_in_force

NOT_GIVEN = "the sink is not given: --sinks FILE.py:NAME, or set EXACTUM_SINKS"


class Verification:
    """Of one query. ``only``: that sink alone.

    Raises:
        CheckpointRefused: the checkpoint is retired: its records are elsewhere.
    """

    def __init__(self, place: QueryPlace, targets: QueryTargets, only: str | None) -> None:
        refuse_retired(place.folder)
        self._place = place
        self._targets = targets
        self._only = only

    def at(
        self, first: int | None, last: int | None, tick: Callable[[str], None]
    ) -> tuple[Promises, list[Evidence]]:
        """What is promised from batch ``first`` to ``last``, and what the sinks have; by default of
        all records. ``tick`` is called with each sink's name.

        Raises:
            SettingRefused: there is no such batch, or no record names the sink.
            ExactumError: the decision log cannot be read.
        """
        if self._place.planned() is None:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"{self._place} has not begun any micro-batch: nothing is promised yet.",
            )
        found = self._read(first, last)
        names = found.participants()
        if self._only is not None and found.each and self._only not in names:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"No record of these epochs names a sink {self._only!r}. They name: "
                f"{', '.join(map(repr, names)) or 'none'}.",
            )
        evidence: list[Evidence] = []
        for name in names if self._only is None else [self._only] if found.each else []:
            tick(name)
            evidence += self._of_sink(name, self._targets.named(name), found.each)
        return found, evidence

    def _read(self, first: int | None, last: int | None) -> Promises:
        """As it is on record now."""
        with closing(self._place.open_log()) as log:
            finished = self._place.finished()
            progress = SparkProgress(
                self._place.planned() or 0, -1 if finished is None else finished, self._place.kept()
            )
            return promises(log, progress, first, last)

    def _of_sink(self, name: str, target: Target | None, each: Sequence[Promise]) -> list[Evidence]:
        if target is None:
            return [unknowable(promise, name, NOT_GIVEN) for promise in each]
        try:
            with closing(inspector_of(target, self._place)) as inspector:
                if not counts(inspector):
                    return [unknowable(promise, name) for promise in each]
                onwards = partial(self._onwards, each[0].batch_id)
                found = list(inspector.evidence(each, onwards))
                participant = inspector.participant()
                last = participant.last_batch() if remembers(participant) else None
            return [*found, *self._unknown_to_the_log(name, last)]
        except (ExactumError, OSError, ValueError) as error:
            return [unknowable(promise, name, str(error)) for promise in each]

    def _onwards(self, first: int) -> Sequence[Promise]:
        return self._read(first, None).each

    def _unknown_to_the_log(self, name: str, last: int | None) -> list[Evidence]:
        """The last batch that a target has, where no record is of it: it was decided by a log that
        is not this one. What a driver that lives has decided meanwhile is on record by now.
        """
        done = self._place.finished()
        if last is None or (done is not None and last <= done):
            return []  # without a record it is among ``unrecorded``
        with closing(self._place.open_log()) as log:
            if commit_in_force(log.read(last)) is not None:
                return []
        why = (
            "the target has this batch, and the decision log does not know of it: checkpoint or "
            "log are an older copy, or two queries run on copies of one checkpoint"
        )
        return [Evidence(last, name, 0, None, Finding.EXTRA, "marker", why)]
