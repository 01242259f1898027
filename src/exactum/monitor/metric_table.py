"""What is measured of each query: names, labels, and where each value comes from. Pure.

Each metric has the label ``query``: the query's name, or the begin of its id. Other labels take few
values: a query's sinks, its topics (bounded by ``QueryStats``), phases, outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from exactum.monitor.query_stats import OTHERS, TOPICS_MAX, InputState, QueryStats

PREFIX = "exactum_"
HEARD_MS = 30_000
"""A lag that was told longer ago is not shown: topics are looked at every few seconds."""
OUTCOMES = ("committed", "abandoned", "redelivered")
RESULTS = ("committed", "swept", "expired", "salvaged")

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values, each with those of the metric's labels besides ``query``."""


@dataclass(frozen=True)
class Metric:
    """``name`` is without ``PREFIX``, and that of a counter without ``_total``. ``of`` takes the
    query and the time in ms since 1970.
    """

    name: str
    text: str
    of: Callable[[QueryStats, int], Samples]
    labels: tuple[str, ...] = ()
    is_counter: bool = False


def _one(value: Callable[[QueryStats, int], float | None]) -> Callable[[QueryStats, int], Samples]:
    """A metric without further labels, absent where its value is not known."""

    def of(query: QueryStats, now_ms: int) -> Samples:
        found = value(query, now_ms)
        return () if found is None else (((), float(found)),)

    return of


def _counted(
    counts: Callable[[QueryStats], Mapping[str, int]], always: tuple[str, ...] = ()
) -> Callable[[QueryStats, int], Samples]:
    """``always``: values of the label that are there from the start, so that a first one is seen
    as an increase.
    """

    def of(query: QueryStats, now_ms: int) -> Samples:
        found = counts(query)
        return [((name,), float(found.get(name, 0))) for name in {**dict.fromkeys(always), **found}]

    return of


def _age(query: QueryStats, now_ms: int, since_ms: int | None) -> float:
    """Seconds since then; 0 where nothing is."""
    return 0.0 if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000


def _info(query: QueryStats, now_ms: int) -> Samples:
    known = (query.run_id or "", query.incarnation or "", query.guarantee or "")
    return (((query.query_id, *known), 1.0),)


def _open_seconds(query: QueryStats, now_ms: int) -> float | None:
    if query.guarantee not in (None, "exactly once"):
        return None
    return _age(query, now_ms, query.open_since_ms)


def _remaining(query: QueryStats, now_ms: int) -> Samples:
    age_s = _age(query, now_ms, query.open_since_ms)
    return [((sink,), limit_ms / 1000 - age_s) for sink, limit_ms in query.timeouts_ms.items()]


def _timeouts(query: QueryStats, now_ms: int) -> Samples:
    return [((sink,), limit_ms / 1000) for sink, limit_ms in query.timeouts_ms.items()]


def _observed_lately(query: QueryStats, now_ms: int) -> list[tuple[str, InputState]]:
    """The lags that are still so: none of a query that does not run, or is frozen."""
    if not query.is_running:
        return []
    return [(of, at) for of, at in query.inputs.items() if now_ms - at.at_ms <= HEARD_MS]


def _source_lag(query: QueryStats, now_ms: int) -> Samples:
    seen = _observed_lately(query, now_ms)
    return [((), float(sum(at.lag_records for _, at in seen)))] if seen else []


def _stalled(query: QueryStats, now_ms: int) -> Samples:
    held = dict.fromkeys(query.inputs, 0)
    for of in query.stalled.values():
        topic = str(of["topic"])
        known = topic if topic in held or len(held) < TOPICS_MAX else OTHERS
        held[known] = held.get(known, 0) + 1
    return [((topic,), float(count)) for topic, count in held.items()]


def _watermark_lag(query: QueryStats, now_ms: int) -> float | None:
    try:
        text = (query.event_time_watermark or "").replace("Z", "+00:00")
        watermark = datetime.fromisoformat(text)
    except ValueError:
        return None
    if watermark.tzinfo is None:
        watermark = watermark.replace(tzinfo=timezone.utc)
    at_s = watermark.timestamp()
    return None if at_s <= 0 else max(0.0, now_ms / 1000 - at_s)  # 1970: none was seen yet


METRICS = (
    Metric(
        "query_info",
        "Which query and run this is; always 1.",
        _info,
        ("id", "run", "incarnation", "guarantee"),
    ),
    Metric("up", "1 while a run of the query lives.", _one(lambda q, _: q.is_running)),
    Metric(
        "stopped",
        "1 where the query was stopped, or had read all that it was to read.",
        _one(lambda q, _: q.has_stopped),
    ),
    Metric(
        "runs",
        "Runs of the query that began.",
        _one(lambda q, _: q.runs),
        is_counter=True,
    ),
    Metric(
        "restarts",
        "Restarts and takeovers, by the disposition of the error before (died: by no error).",
        _counted(lambda q: q.restarts, ("died",)),
        ("disposition",),
        is_counter=True,
    ),
    Metric(
        "epochs",
        "Micro-batches that were committed, abandoned, or redelivered by a later run.",
        _counted(lambda q: q.epochs, OUTCOMES),
        ("outcome",),
        is_counter=True,
    ),
    Metric("last_epoch", "The micro-batch that was completed last.", _one(lambda q, _: q.epoch)),
    Metric(
        "run_timestamp_seconds",
        "When the run at hand began.",
        _one(lambda q, _: _seconds(q.run_began_ms)),
    ),
    Metric(
        "last_decision_timestamp_seconds",
        "When a commit was recorded last.",
        _one(lambda q, _: _seconds(q.last_decision_ms)),
    ),
    Metric(
        "last_commit_timestamp_seconds",
        "When every sink had acknowledged a commit last.",
        _one(lambda q, _: _seconds(q.last_commit_ms)),
    ),
    Metric(
        "batch_age_seconds",
        "Age of the micro-batch at hand; 0 between two.",
        _one(lambda q, now_ms: _age(q, now_ms, None if q.at_hand is None else q.at_hand.since_ms)),
    ),
    Metric(
        "rows_read",
        "Kafka offsets read by committed micro-batches; control markers count too.",
        _one(lambda q, _: q.rows_read),
        is_counter=True,
    ),
    Metric(
        "rows_committed",
        "Rows committed, by sink.",
        _counted(lambda q: q.rows_by_sink),
        ("sink",),
        is_counter=True,
    ),
    Metric(
        "transactions",
        "Transactions committed; swept (aborted, undecided); expired (undone outside); salvaged.",
        _counted(lambda q: q.transactions, RESULTS),
        ("result",),
        is_counter=True,
    ),
    Metric(
        "in_doubt_transactions",
        "Decided transactions that are not known to stand in every sink.",
        _one(lambda q, _: 0 if q.in_doubt is None else q.in_doubt.transactions),
    ),
    Metric(
        "in_doubt_age_seconds",
        "Since when they are decided; 0 where there are none.",
        _one(
            lambda q, now_ms: _age(q, now_ms, None if q.in_doubt is None else q.in_doubt.since_ms)
        ),
    ),
    Metric(
        "oldest_open_transaction_seconds",
        "For how long transactions may be open, also of a dead driver; 0: none.",
        _one(_open_seconds),
    ),
    Metric(
        "timeout_remaining_seconds",
        "Time until the target may abort what is open; the whole timeout where nothing is.",
        _remaining,
        ("sink",),
    ),
    Metric(
        "transaction_timeout_seconds",
        "How long the target lets a transaction be open.",
        _timeouts,
        ("sink",),
    ),
    Metric(
        "input_lag_records",
        "Offsets that could be read and do not stand in the sinks.",
        lambda q, now_ms: [
            ((topic,), float(at.lag_records)) for topic, at in _observed_lately(q, now_ms)
        ],
        ("topic",),
    ),
    Metric(
        "input_lag_seconds",
        "For how long the oldest of them could have been read.",
        lambda q, now_ms: [
            ((topic,), at.lag_seconds)
            for topic, at in _observed_lately(q, now_ms)
            if at.lag_seconds is not None
        ],
        ("topic",),
    ),
    Metric(
        "input_lso_gap_records",
        "Offsets hidden behind open transactions upstream.",
        lambda q, _: [((topic,), float(at.lso_gap_records)) for topic, at in q.inputs.items()],
        ("topic",),
    ),
    Metric(
        "upstream_stalled",
        "Partitions that an open transaction upstream holds back.",
        _stalled,
        ("topic",),
    ),
    Metric(
        "source_lag_records",
        "Offsets that could be read and do not stand in the sinks, of all topics.",
        _source_lag,
    ),
    Metric(
        "rows_dead_lettered",
        "Rows put into the dead letters.",
        _one(lambda q, _: q.rows_dead_lettered),
        is_counter=True,
    ),
    Metric(
        "rows_skipped",
        "Records skipped because they could not be decoded.",
        _one(lambda q, _: q.rows_skipped),
        is_counter=True,
    ),
    Metric(
        "fenced",
        "Times that a newer run took the query over from the one at hand.",
        _one(lambda q, _: q.fenced),
        is_counter=True,
    ),
    Metric("state_rows", "Rows in Spark's state stores.", _one(lambda q, _: q.state_rows)),
    Metric(
        "state_bytes", "Bytes of Spark's state stores in memory.", _one(lambda q, _: q.state_bytes)
    ),
    Metric(
        "watermark_lag_seconds",
        "How far the event-time watermark is behind the clock.",
        _one(_watermark_lag),
    ),
)
