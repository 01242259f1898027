"""How a query is, in one word, why, and what to do. Pure: its numbers and the time are given in.

There is no threshold to tune. A query is judged over a window, and the window is its own: 30 s, or
four of its longest micro-batches, or four of its trigger's intervals, whatever is most. The first
rule that holds is the verdict.

    IN DOUBT       A micro-batch is decided, and it is not known to stand in every sink: for over
                   30 s (or three of its longest commits), or no process runs that would finish it.
    DOWN           No process runs the query; or it fails at each start, for the third time since
                   its last complete micro-batch. A query that ends by itself and has ended is OK.
    STALLED        Nothing was heard of it for 30 s, or three times what it is usually silent for.
                   Or its micro-batch at hand takes three times as long as its longest one (more
                   where it reads more records; the first one of all has ten windows).
                   Or it had something to read all through the window, and has begun nothing. Or
                   it was started ten windows ago, and neither begins nor waits for data.
    SLOW           All through the window there was something to read; the lowest lag of the newer
                   half is not below that of the older half; and what is left is more than what is
                   in its hands anyway: older than its last two micro-batches and two looks.
    HELD UPSTREAM  It keeps up, and an open transaction upstream hides the rest of a partition.
    UNKNOWN        Nobody can tell: no run of it is known, or its checkpoint cannot be read.
    OK             Everything else. A query with nothing to read is OK, and so is one that has only
                   just begun or catches up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise

from exactum.monitor.job import JobState
from exactum.monitor.query_stats import (
    FRESH_MS,
    SAME_SAMPLE_MS,
    BatchLine,
    LagSample,
    QueryStats,
    RunEnd,
)
from exactum.monitor.words import duration, millis

WINDOW_MS = 30_000
LOOK_MS = 5_000
"""How far apart two samples of the lag are (``spark.source.watch``)."""
LONGEST_TIMES = 3
FIRST_TIMES = 10
FAILED_STARTS = 3
RESTART_LATE_MS = 120_000
"""A restart that is late by more will not come: its supervisor is gone as well."""
BATCHES_JUDGED = 32
"""Its last micro-batches, by which the one at hand is judged."""
ERROR_CHARACTERS_MAX = 300
STARTING = "A script that is just starting is seen here once its query begins."


class Verdict(Enum):
    """The worst come first."""

    DOWN = "DOWN"
    IN_DOUBT = "IN DOUBT"
    STALLED = "STALLED"
    SLOW = "SLOW"
    HELD_UPSTREAM = "HELD UPSTREAM"
    OK = "OK"
    UNKNOWN = "UNKNOWN"

    @property
    def is_working(self) -> bool:
        """The query does what it can: OK or SLOW."""
        return self in (Verdict.OK, Verdict.SLOW)


@dataclass(frozen=True)
class Judgement:
    """``reason`` and ``todo`` are sentences for a person; ``todo`` is empty where nothing is to be
    done.
    """

    verdict: Verdict
    reason: str
    todo: str = ""


@dataclass(frozen=True)
class _Case:
    stats: QueryStats
    now_ms: int

    @property
    def is_alive(self) -> bool:
        return self.stats.is_running

    @property
    def restarts(self) -> bool:
        """A supervisor is about to start it again."""
        due_ms = self.stats.restart_at_ms
        return due_ms is not None and self.now_ms - due_ms < RESTART_LATE_MS

    @cached_property
    def batches(self) -> list[BatchLine]:
        """Those that were completed last."""
        return self.stats.completed[-BATCHES_JUDGED:]

    @cached_property
    def longest_ms(self) -> int:
        return max((batch.took_ms for batch in self.batches), default=0)

    @cached_property
    def window_ms(self) -> int:
        return max(WINDOW_MS, 4 * max(self.longest_ms, self.stats.trigger_ms))

    @cached_property
    def lags(self) -> list[LagSample]:
        """Those of the window."""
        return [s for s in self.stats.lags if s.at_ms >= self.now_ms - self.window_ms]

    @property
    def behind_since_ms(self) -> int | None:
        """Since when each sample says that there is something to read; None: the last one does
        not, or there is none.
        """
        since_ms = None
        for sample in reversed(self.stats.lags):
            if sample.records == 0:
                break
            since_ms = sample.at_ms
        return since_ms

    @property
    def completed_in_window(self) -> int:
        begin_ms = self.now_ms - self.window_ms
        return sum(1 for batch in self.batches if batch.at_ms >= begin_ms)


def judge(state: JobState) -> Judgement:
    """How the query is: the only verdict there is. It never raises."""
    if state.unknown_why:
        return Judgement(Verdict.UNKNOWN, state.unknown_why)
    case = _Case(state.stats, state.at_ms)
    rules = (_in_doubt, _down, _stalled, _slow, _blocked_upstream)
    found = next(filter(None, (rule(case) for rule in rules)), None)
    if found is None:
        return Judgement(Verdict.OK, _fine(case))
    goes_on = case.is_alive or case.restarts
    if state.undecided_why and found.verdict is Verdict.DOWN and not goes_on:
        # What cannot be read here may not be readable at a start either.
        return Judgement(
            found.verdict,
            f"{found.reason} Whether micro-batch {state.planned} is decided is not known.",
            f"First see to this: {state.undecided_why}",
        )
    return found


# ---- the rules -------------------------------------------------------------------------------


def _in_doubt(case: _Case) -> Judgement | None:
    doubt = case.stats.in_doubt
    if doubt is None:
        return None
    what = f"Micro-batch {doubt.batch_id} is decided, and not known to stand in every sink"
    if not case.is_alive:
        return Judgement(
            Verdict.IN_DOUBT,
            f"{what}; no process runs the query.",
            "Start the query again: it finishes what is decided before anything else. Without "
            "Spark: exactum transactions finish.",
        )
    # A run that has only just begun has not asked its sinks yet.
    age_ms = case.now_ms - max(doubt.since_ms, case.stats.run_began_ms or 0)
    commit_ms = max((batch.phase_ms.get("commit", 0.0) for batch in case.batches), default=0)
    if age_ms <= max(WINDOW_MS, LONGEST_TIMES * commit_ms):
        return None
    return Judgement(
        Verdict.IN_DOUBT,
        f"{what} for {span(age_ms)}: a sink does not acknowledge its commit.",
        "Look whether each sink's server is up: exactum transactions list names the sinks. The "
        "query goes on by itself when they answer.",
    )


def _down(case: _Case) -> Judgement | None:
    stats = case.stats
    failure = stats.last_failure
    if case.is_alive:
        if stats.failed_starts < FAILED_STARTS or failure is None:
            return None
        return Judgement(
            Verdict.DOWN,
            f"It has failed {stats.failed_starts} times since its last complete micro-batch. "
            f"{_ending_of(failure)}",
            _advice_after(failure.disposition, is_alive=True),
        )
    if stats.has_stopped and stats.has_read_all:
        return None
    if stats.has_stopped:
        return Judgement(
            Verdict.DOWN,
            "It was stopped; nothing failed.",
            f"Start it again when it is to go on. {STARTING}",
        )
    end = stats.last_end
    if end is not None:
        reason = f"No process runs it. {_ending_of(end)}"
        if case.restarts:
            left_ms = max(0, (stats.restart_at_ms or 0) - case.now_ms)
            when = f"in {span(left_ms)}" if left_ms else "now"
            return Judgement(
                Verdict.DOWN,
                reason,
                f"Wait: exactum run starts it again {when}. If it ends so again, mend what the "
                "error names.",
            )
        return Judgement(Verdict.DOWN, reason, _advice_after(end.disposition))
    if stats.run_began_ms is None and stats.epoch is None:
        reason = "No process runs it, and nothing is known of a run."
    else:
        reason = "Its process is gone without a word: killed, or the machine went down."
    return Judgement(Verdict.DOWN, reason, _advice_after(""))


def _stalled(case: _Case) -> Judgement | None:
    if not case.is_alive:
        return None
    return _silent(case) or _hangs(case) or _begins_nothing(case) or _never_begins(case)


def _silent(case: _Case) -> Judgement | None:
    stats = case.stats
    if stats.observed_ms is None or (stats.at_hand is not None and not stats.is_watched):
        return None  # during a batch only the looks at topics tell something
    usual_ms = max(stats.gaps_ms, default=0)
    waits_ms = 0 if stats.is_watched else 2 * stats.trigger_ms
    silent_ms = case.now_ms - stats.observed_ms
    if silent_ms <= max(WINDOW_MS, LONGEST_TIMES * usual_ms, waits_ms):
        return None
    return Judgement(
        Verdict.STALLED,
        f"Nothing was heard of it for {span(silent_ms)}, although its process lives: it is frozen, "
        "its brokers do not answer, or the history cannot be written.",
        "Look at the process, its log and the brokers. A frozen one: kill -CONT, or kill it and "
        "start it again; exactum run --standby replaces it.",
    )


def _hangs(case: _Case) -> Judgement | None:
    at_hand = case.stats.at_hand
    if at_hand is None:
        return None
    age_ms = case.now_ms - at_hand.since_ms
    if age_ms <= _allowed_ms(case, at_hand.records):
        return None
    known = f"its longest took {span(case.longest_ms)}" if case.longest_ms else "it is its first"
    return Judgement(
        Verdict.STALLED,
        f"Micro-batch {at_hand.batch_id} has been at work for {span(age_ms)}; {known}.",
        "Look at its tasks in Spark's UI, and at the sinks' servers. If nothing moves, kill the "
        "driver and start it again: the micro-batch is run anew.",
    )


def _allowed_ms(case: _Case, records: int | None) -> int:
    """How long the batch at hand may take before it is taken for stuck."""
    if not case.longest_ms:
        return FIRST_TIMES * WINDOW_MS
    most = max((batch.records or 0 for batch in case.batches), default=0)
    share = max(1.0, records / most) if records is not None and most else 1.0
    return max(WINDOW_MS, round(LONGEST_TIMES * case.longest_ms * share))


def _begins_nothing(case: _Case) -> Judgement | None:
    since_ms = case.behind_since_ms
    if since_ms is None or case.stats.at_hand is not None or case.completed_in_window:
        return None
    if case.now_ms - since_ms < case.window_ms:
        return None
    return Judgement(
        Verdict.STALLED,
        f"{_records(case.stats.lags[-1])} to be read for {span(case.now_ms - since_ms)}, and no "
        "micro-batch was begun.",
        "Look at the driver's log and at its threads (jstack): Spark does not begin the next "
        "micro-batch. Kill the driver and start it again.",
    )


def _never_begins(case: _Case) -> Judgement | None:
    waits_ms = case.stats.waits_ms
    if waits_ms is None or case.now_ms - waits_ms <= FIRST_TIMES * WINDOW_MS:
        return None
    return Judgement(
        Verdict.STALLED,
        f"It has begun no micro-batch since its start {span(case.now_ms - waits_ms)} ago, and does "
        "not wait for data.",
        "Look at the driver's log: can it reach the brokers that it reads from?",
    )


def _slow(case: _Case) -> Judgement | None:
    lags = case.lags
    if not case.is_alive or not case.completed_in_window or not _covers(case, lags):
        return None
    if any(sample.records == 0 for sample in lags) or _is_in_hand(case, lags[-1]):
        return None
    half_ms = case.now_ms - case.window_ms // 2
    older = [s.records for s in lags if s.at_ms < half_ms]
    newer = [s.records for s in lags if s.at_ms >= half_ms]
    if not older or not newer or min(newer) < min(older):
        return None
    return Judgement(
        Verdict.SLOW,
        f"{_records(lags[-1])} to be read, and the lag did not fall in {span(case.window_ms)}, "
        "although micro-batches are completed.",
        "More comes in than it writes. Look at the longest phase; give it more cores, more "
        "partitions, or a larger maxOffsetsPerTrigger.",
    )


def _blocked_upstream(case: _Case) -> Judgement | None:
    stalled = case.stats.stalled
    if not case.is_alive or not stalled:
        return None
    fields = [*stalled.values()]
    oldest = min(fields, key=lambda of: int(of.get("since_ms") or 0))
    hidden = sum(int(of.get("lso_gap") or 0) for of in fields)
    producer, name = oldest.get("producer_id"), oldest.get("transactional_id")
    who = f"of transactional id {name!r}" if name else f"of producer id {producer}"
    if name is None and producer is None:
        who = "of an unknown producer"
    since_ms = case.now_ms - int(oldest.get("since_ms") or case.now_ms)
    more = f" and {len(fields) - 1} more" if len(fields) > 1 else ""
    return Judgement(
        Verdict.HELD_UPSTREAM,
        f"It has read what it may. {oldest.get('topic')}-{oldest.get('partition')}{more}: an open "
        f"transaction {who} hides {hidden:,} offsets, for {span(since_ms)}.",
        "Have that producer end its transaction, or wait for its timeout. Where nobody owns it any "
        "more: kafka-transactions.sh --bootstrap-server BROKER:PORT find-hanging --topic TOPIC.",
    )


# ---- failures, in words --------------------------------------------------------------------


def _ending_of(failure: RunEnd) -> str:
    """``It ended with Unavailable: the broker ...``, in one line and with a full stop."""
    text = " ".join((failure.reason or failure.error or "an error without a text").split())
    if text.startswith("it "):  # as a supervisor says of a process
        text = f"I{text[1:]}"
    else:
        kind = failure.error.partition(":")[0]
        text = f"It ended with {text if kind in text else f'{kind}: {text}'}"
    text = text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]} ..."
    return text if text.endswith(".") else f"{text}."


def _advice_after(disposition: str, *, is_alive: bool = False) -> str:
    """What to do after an error of this disposition (``errors.Disposition``).

    ``is_alive``: a process runs the query. Where none does, who has fenced the last one may have
    been an operator, and nobody would come to run it.
    """
    if disposition == "fenced" and is_alive:
        return "Leave it: a newer run has the query. Stop that one first if this one is wanted."
    if disposition == "fenced":
        return (
            "Make sure that no other machine runs it, then start it again: a newer run may have "
            "taken it over, or an operator by exactum transactions abort."
        )
    if is_alive:
        return "Change what the error says; it is tried again meanwhile."
    if disposition == "halt":
        return "Change what the error says, then start it again."
    return f"Start it again; exactum run does that by itself. {STARTING}"


# ---- OK, in words ----------------------------------------------------------------------------


def _fine(case: _Case) -> str:
    if not case.is_alive:
        return "It has read what it was to read, and has ended."
    lags, at_hand = case.stats.lags, case.stats.at_hand
    if case.stats.has_found_nothing:
        return "It was started, and has found nothing to read yet."
    if case.stats.is_waiting and at_hand is None:
        return "It was started, and has not begun a micro-batch yet."
    is_stale = bool(lags) and case.now_ms - lags[-1].at_ms > FRESH_MS
    if lags and lags[-1].records == 0 and not is_stale:
        of = " in what is counted" if case.stats.not_counted else ""
        return f"Nothing is left to read{of}."
    if at_hand is not None and not case.completed_in_window:
        many = "" if at_hand.records is None else f" of {at_hand.records:,} records"
        age = span(case.now_ms - at_hand.since_ms)
        return f"Micro-batch {at_hand.batch_id}{many} is at work for {age}."
    is_silent = bool(lags) and (case.stats.observed_ms or 0) - lags[-1].at_ms < SAME_SAMPLE_MS
    if is_stale:
        left = f"{lags[-1].records:,} offsets were" if lags[-1].records else "Nothing was"
        since = "nothing was heard since" if is_silent else "its lag is not known since"
        return f"{left} left to read {span(case.now_ms - lags[-1].at_ms)} ago; {since}."
    if not lags or not _covers(case, case.lags):
        return "It has only just begun." if _began_lately(case) else "It runs."
    if _is_in_hand(case, lags[-1]):
        return f"It keeps up: {_records(lags[-1])} to be read."
    return f"It catches up: {_records(lags[-1])} to be read."


def _covers(case: _Case, lags: list[LagSample]) -> bool:
    """Whether samples reach through the whole window, but for two looks."""
    return bool(lags) and lags[0].at_ms <= case.now_ms - case.window_ms + 2 * LOOK_MS


def _began_lately(case: _Case) -> bool:
    return case.now_ms - (case.stats.run_began_ms or 0) < case.window_ms


def _is_in_hand(case: _Case, sample: LagSample) -> bool:
    """Whether the lag is what a query that keeps up has: what its micro-batch at hand reads, and
    what comes in meanwhile.
    """
    ends = [batch.at_ms for batch in case.batches]
    apart = [later - earlier for earlier, later in pairwise(ends)][-4:]
    usual_ms = max([case.longest_ms, case.stats.trigger_ms, *sorted(apart)[:1]])
    if sample.seconds is not None:
        return sample.seconds * 1000 <= 2 * usual_ms + 2 * LOOK_MS
    most = max((batch.records or 0 for batch in case.batches), default=0)
    return sample.records <= 2 * most


def _records(sample: LagSample) -> str:
    age = "" if sample.seconds is None else f", the oldest for {duration(sample.seconds)},"
    return f"{sample.records:,} offsets{age} are"


def span(ms: int) -> str:
    """A duration in words. Clocks of two machines differ: none is below zero."""
    return millis(max(0, ms))
