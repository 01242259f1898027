"""What a query did lately, as a judgement needs it: samples of its lag, its last micro-batches, and
how long it is usually silent. Pure, bounded, and a value: hearing a fact makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exactum.monitor.fact import Fact

LAGS_MAX = 256
"""Samples of lag. Where there are more, the older ones are joined in pairs, by the lower lag."""
EPOCHS_MAX = 32
GAPS_MAX = 32
SAME_LOOK_MS = 1_000
"""Topics that are told of within this time were looked at together."""
WAITS_FOR_DATA = "Waiting for "
"""How Spark begins to say that there is nothing to do (``QueryWaits.doing``)."""
FORGOTTEN_MS = 120_000
"""A topic that was not told of for so long is not read any more."""


@dataclass(frozen=True)
class LagSample:
    """All topics together. ``seconds`` is the oldest age, None where it is not known."""

    at_ms: int
    records: int
    seconds: float | None


@dataclass(frozen=True)
class EpochSample:
    """A micro-batch that was completed. ``records`` is what it read, None where that is not
    known.
    """

    batch_id: int
    at_ms: int
    took_ms: int
    commit_ms: int
    records: int | None


@dataclass(frozen=True)
class AtHand:
    """The micro-batch that was begun last and is not over."""

    batch_id: int
    since_ms: int
    records: int | None


@dataclass(frozen=True)
class Window:
    """The newest samples are the last ones.

    ``lags`` are those of the run at hand, ``epochs`` may be of earlier ones. ``failed_starts``:
    runs in a row that ended with an error before they completed anything. ``restart_at_ms``: when a
    supervisor starts it again. ``finished``: the last batch that a supervisor has finished, whose
    driver had died. ``trigger_ms`` and ``ends`` as in ``events.RunStarted``.
    """

    lags: tuple[LagSample, ...] = ()
    epochs: tuple[EpochSample, ...] = ()
    at_hand: AtHand | None = None
    failed_starts: int = 0
    restart_at_ms: int | None = None
    finished: int | None = None
    trigger_ms: int = 0
    ends: bool = False
    is_waiting: bool = False
    """It was started and has begun no micro-batch. ``waits_ms``: since when not for want of data.
    """
    waits_ms: int | None = None
    is_looked_at: bool = False
    """Its topics are looked at every few seconds, so it is never silent for long."""
    gaps_ms: tuple[int, ...] = ()
    observed_ms: int | None = None
    _topics: Mapping[str, LagSample] = field(default_factory=dict)
    _has_failed: bool = False

    def observed(self, fact: Fact) -> Window:
        """The window after this fact. One that says nothing of this changes the silence only."""
        gap_ms = 0 if self.observed_ms is None else max(0, fact.at_ms - self.observed_ms)
        now = replace(
            self,
            observed_ms=max(fact.at_ms, self.observed_ms or 0),
            gaps_ms=(*self.gaps_ms, gap_ms)[-GAPS_MAX:],
        )
        take = _TAKES.get(fact.name)
        return now if take is None else take(now, fact.at_ms, fact.fields)

    # ---- runs --------------------------------------------------------------------------------

    def _run_started(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        return replace(
            self,
            lags=(),
            gaps_ms=(),
            restart_at_ms=None,
            trigger_ms=int(of.get("trigger_ms") or 0),
            ends=bool(of.get("ends")),
            is_looked_at=False,
            is_waiting=False,
            waits_ms=None,
            _topics={},
            _has_failed=False,
        )

    def _waits(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        """A run that has begun nothing: it is known by that alone."""
        for_data = str(of["doing"]).startswith(WAITS_FOR_DATA)
        since_ms = at_ms if self.waits_ms is None else self.waits_ms
        return replace(
            self,
            lags=(),
            gaps_ms=(),
            restart_at_ms=None,
            is_waiting=True,
            waits_ms=None if for_data else since_ms,
            is_looked_at=True,
            _topics={},
            _has_failed=False,
        )

    def _ended(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        """Of a run or of its process: one death may come as both."""
        failed = bool(of["error"]) if "meaning" not in of else of["meaning"] != "done"
        return replace(
            self,
            at_hand=None,
            failed_starts=self.failed_starts + (failed and not self._has_failed),
            _has_failed=self._has_failed or failed,
        )

    def _restarts(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        return replace(self, restart_at_ms=at_ms + round(float(of["delay_s"]) * 1000))

    def _supervisor_ends(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        return replace(self, restart_at_ms=None)

    def _decided_finished(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        if of["left"] or not of["batch_ids"]:
            return self
        return replace(self, finished=max(map(int, of["batch_ids"])))

    # ---- micro-batches -----------------------------------------------------------------------

    def _began(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        records = of["input_records"]
        at_hand = AtHand(int(of["batch_id"]), at_ms, None if records is None else int(records))
        return replace(self, at_hand=at_hand)

    def _completed(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        phases = {name: float(ms) for name, ms in of["phase_ms"].items()}
        took_ms, records, begun = sum(phases.values()), None, self.at_hand
        if begun is not None and begun.batch_id == int(of["batch_id"]):
            took_ms, records = max(took_ms, at_ms - begun.since_ms), begun.records
        commit_ms = round(phases.get("commit", 0.0))
        epoch = EpochSample(int(of["batch_id"]), at_ms, round(took_ms), commit_ms, records)
        return replace(
            self, at_hand=None, failed_starts=0, epochs=(*self.epochs, epoch)[-EPOCHS_MAX:]
        )

    def _redelivered(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        is_it = self.at_hand is not None and self.at_hand.batch_id == int(of["batch_id"])
        return replace(self, at_hand=None) if is_it else self

    def _abandoned(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        return replace(self, at_hand=None)

    # ---- lag ---------------------------------------------------------------------------------

    def _lag(self, at_ms: int, of: Mapping[str, Any]) -> Window:
        seconds = of["lag_seconds"]
        seen = LagSample(at_ms, int(of["lag_records"]), None if seconds is None else float(seconds))
        topics = {
            topic: sample
            for topic, sample in self._topics.items()
            if at_ms - sample.at_ms < FORGOTTEN_MS
        }
        topics[str(of["topic"])] = seen
        behind = [sample for sample in topics.values() if sample.records > 0]
        ages = [sample.seconds for sample in behind]
        oldest = None if None in ages else max((a for a in ages if a is not None), default=0.0)
        whole = LagSample(at_ms, sum(sample.records for sample in behind), oldest)
        return replace(self, _topics=topics, is_looked_at=True, lags=_with(self.lags, whole))


_TAKES: Mapping[str, Callable[[Window, int, Mapping[str, Any]], Window]] = {
    "RunStarted": Window._run_started,
    "QueryWaits": Window._waits,
    "RunEnded": Window._ended,
    "ProcessEnded": Window._ended,
    "ProcessRestarts": Window._restarts,
    "DecidedFinished": Window._decided_finished,
    "SupervisorEnds": Window._supervisor_ends,
    "EpochBegan": Window._began,
    "EpochCompleted": Window._completed,
    "EpochRedelivered": Window._redelivered,
    "EpochAbandoned": Window._abandoned,
    "InputLag": Window._lag,
}


def _with(lags: tuple[LagSample, ...], new: LagSample) -> tuple[LagSample, ...]:
    if lags and 0 <= new.at_ms - lags[-1].at_ms < SAME_LOOK_MS:
        lags = lags[:-1]
    if len(lags) >= LAGS_MAX:
        older, newer = lags[: LAGS_MAX // 2], lags[LAGS_MAX // 2 :]
        pairs = zip(older[::2], older[1::2], strict=False)
        lags = (*(min(pair, key=lambda s: s.records) for pair in pairs), *newer)
    return (*lags, new)
