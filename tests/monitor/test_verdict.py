"""Every rule by which a query is judged, and that there is exactly one verdict whatever is heard."""

from __future__ import annotations

import string
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum import events
from exactum.monitor.fact import SUPERVISOR_FACTS, Fact
from exactum.monitor.job import JobState
from exactum.monitor.query_stats import (
    BATCHES_MAX,
    GAPS_MAX,
    LAGS_MAX,
    OTHERS,
    TOPICS_MAX,
    QueryStats,
)
from exactum.monitor.script_stats import ScriptStats
from exactum.monitor.verdict import Judgement, Verdict, judge, span
from tests.kit.monitor.facts import NAME, QUERY, WHEN_MS, Story


def at(stats: QueryStats, now_ms: int, is_alive: bool | None = None) -> JobState:
    """``is_alive``: a process runs the query, as its lock says; None: as its facts say."""
    now = stats.copy()
    now.is_running = stats.is_running if is_alive is None else is_alive
    return JobState(now_ms, now)


def judged(story: Story, is_alive: bool | None = None) -> Judgement:
    found = judge(at(story.stats, story.now_ms, is_alive))
    assert found.reason.endswith(".")
    return found


def verdict(story: Story, is_alive: bool | None = None) -> Verdict:
    return judged(story, is_alive).verdict


def at_work(seconds: int, lag: Any, epoch_s: float = 1.0, age_s: Any = lambda at_s: 2.0) -> Story:
    """A query that completes a batch of 10 records after another, looked at every 5 s."""
    story, at_s, batch_id = Story().starts(), 0.0, 0
    begun_ms = story.now_ms
    while at_s < seconds:
        story.epoch(batch_id, epoch_s)
        batch_id += 1
        at_s = (story.now_ms - begun_ms) / 1000
        if at_s // 5 > (at_s - epoch_s) // 5:
            story.lag(round(lag(at_s)), age_s(at_s))
    return story


# ---- OK --------------------------------------------------------------------------------------


def test_a_query_with_nothing_to_read_is_fine_for_hours() -> None:
    story = Story().starts().epoch(0)
    for _ in range(2000):
        story.after(5).lag(0)
    assert judged(story) == Judgement(Verdict.OK, "Nothing is left to read.")


def test_a_lag_of_long_ago_is_not_told_as_what_is_so() -> None:
    """A driver that is frozen, or whose history stands still, shows no 'nothing is left'."""
    story = Story().starts().epoch(0).after(5).lag(0)
    assert judged(story.after(14)).reason == "Nothing is left to read."
    found = judged(story.after(6))
    assert found.reason == "Nothing was left to read 20 s ago; nothing was heard since."
    assert judged(story.epoch(1)).reason.endswith("21 s ago; its lag is not known since.")
    story = Story().starts().epoch(0).after(5).lag(70, 1.0).after(20)
    assert judged(story).reason == "70 offsets were left to read 20 s ago; nothing was heard since."


def test_a_query_that_has_only_just_begun_is_fine() -> None:
    """Far behind, and its first micro-batch takes its time."""
    story = Story().starts().begins(0, 100_000)
    assert verdict(story) is Verdict.OK
    for _ in range(12):
        story.after(5).lag(1_000_000, 3600.0)
        assert judged(story).reason == (
            f"Micro-batch 0 of 100,000 records is at work for {span(story.now_ms - WHEN_MS)}."
        )


def test_a_query_that_keeps_up_is_fine_though_something_is_always_left() -> None:
    """What its micro-batch at hand reads and what comes in meanwhile is no lag that grows, however
    it fluctuates.
    """
    story = at_work(120, lambda at_s: 100 + at_s % 30)
    found = judged(story)
    assert (found.verdict, found.todo) == (Verdict.OK, "")
    assert found.reason.startswith("It keeps up: ")


def test_a_query_that_keeps_up_is_fine_though_no_ages_are_known() -> None:
    assert verdict(at_work(120, lambda at_s: 15, age_s=lambda at_s: None)) is Verdict.OK


def test_a_query_that_catches_up_is_fine() -> None:
    story = at_work(120, lambda at_s: 1_000_000 - 100 * at_s, age_s=lambda at_s: 3600 - at_s)
    assert (
        judged(story).reason
        == "It catches up: 988,000 offsets, the oldest for 58 min, are to be read."
    )


def test_a_large_batch_after_small_ones_may_take_its_time() -> None:
    """A hundred times the records: a hundred times the time."""
    story = at_work(60, lambda at_s: 0).begins(999, 1000)
    for _ in range(55):
        story.after(5).lag(1000, 60.0)
    assert verdict(story) is Verdict.OK
    for _ in range(10):
        story.after(5).lag(1000, 60.0)
    assert verdict(story) is Verdict.STALLED


def test_a_trigger_once_an_hour_is_no_stall() -> None:
    story = Story().starts(trigger_ms=3_600_000).epoch(0, 20.0)
    for _ in range(700):
        story.after(5).lag(50, 1000.0)
    assert verdict(story) is Verdict.OK


def test_a_query_that_ends_by_itself_and_has_ended_is_fine() -> None:
    """Available now, a backfill: it has read what there was. One that fails instead is down."""
    story = (
        Story()
        .starts(ends=True)
        .epoch(0)
        .ends(has_read_all=True)
        .dies("done", text="it ended by itself")
        .after(9999)
    )
    assert judged(story) == Judgement(Verdict.OK, "It has read what it was to read, and has ended.")
    assert verdict(Story().starts(ends=True).ends("Unavailable", "retry", "no")) is Verdict.DOWN
    assert verdict(Story().starts(ends=True).epoch(0).ends()) is Verdict.DOWN, "it was stopped"


def test_a_query_that_was_started_again_and_finds_nothing_to_read() -> None:
    """Spark calls nobody before the first batch. It is told of all the same, and a freeze or a start
    that hangs shows.
    """
    story = Story().starts().epoch(0).ends().after(9_999)

    def waits(doing: str, seconds: int) -> Story:
        for _ in range(seconds // 10):
            story.after(10).waits(doing, "i2")
        return story

    found = judged(waits("Waiting for data to arrive", 3600))
    assert found == Judgement(Verdict.OK, "It was started, and has found nothing to read yet.")
    assert verdict(story.after(31)) is Verdict.STALLED
    assert verdict(waits("Getting offsets from KafkaV2[...]", 300)) is Verdict.OK
    found = judged(waits("Getting offsets from KafkaV2[...]", 20))
    assert (found.verdict, "does not wait for data" in found.reason) == (Verdict.STALLED, True)
    assert verdict(story.starts("i2").epoch(1)) is Verdict.OK


# ---- SLOW ------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", [0, 50])
def test_slow(growth: int) -> None:
    """The lag does not fall, whether it grows or stays, and is more than what is in hand."""
    story = at_work(60, lambda at_s: 10_000 + growth * at_s, age_s=lambda at_s: 300.0)
    found = judged(story)
    assert found.verdict is Verdict.SLOW
    assert "did not fall in 30 s" in found.reason
    assert found.todo


def test_a_lag_that_was_ever_zero_in_the_window_is_not_slow() -> None:
    story = at_work(60, lambda at_s: 0 if 40 <= at_s < 45 else 10_000, age_s=lambda at_s: 300.0)
    assert verdict(story) is Verdict.OK


def test_slow_batches_have_a_long_window() -> None:
    """Batches of a minute: the lag between two of them rises, and that says nothing."""
    story = at_work(90, lambda at_s: 1000 * at_s, epoch_s=60.0, age_s=lambda at_s: 400.0)
    assert verdict(story) is Verdict.OK
    story = at_work(900, lambda at_s: 1000 * at_s, epoch_s=60.0, age_s=lambda at_s: 400.0)
    assert verdict(story) is Verdict.SLOW


# ---- STALLED ---------------------------------------------------------------------------------


def test_a_batch_that_takes_far_longer_than_any_before() -> None:
    story = at_work(60, lambda at_s: 5).begins(99)
    for _ in range(6):
        story.after(5).lag(500, 20.0)
    assert verdict(story).is_working
    found = judged(story.after(5).lag(500, 20.0))
    assert found.verdict is Verdict.STALLED
    assert found.reason == "Micro-batch 99 has been at work for 35 s; its longest took 1 s."


def test_a_first_batch_that_never_ends() -> None:
    """Nobody knows yet how long its batches take: it has ten windows."""
    story = Story().starts().begins(0)
    for _ in range(61):
        story.after(5).lag(500, 20.0)
    found = judged(story)
    assert (found.verdict, "it is its first" in found.reason) == (Verdict.STALLED, True)


def test_something_to_read_and_nothing_begun() -> None:
    story = at_work(60, lambda at_s: 0)
    for _ in range(6):
        assert verdict(story.after(5).lag(50, 5.0)) is Verdict.OK
    found = judged(story.after(5).lag(50, 5.0))
    assert (found.verdict, "no micro-batch was begun" in found.reason) == (Verdict.STALLED, True)


def test_a_silent_process() -> None:
    """Frozen: nothing is heard of it any more, also in the midst of a batch."""
    for story in (at_work(60, lambda at_s: 0), at_work(60, lambda at_s: 9).begins(99)):
        assert verdict(story.after(29)) is Verdict.OK
        found = judged(story.after(2))
        assert found.verdict is Verdict.STALLED
        assert found.reason.startswith("Nothing was heard of it for ")


def test_a_source_that_nobody_looks_at_may_be_silent_in_a_batch() -> None:
    """Without a Kafka source nothing is said while a batch is at work; without one, what it is
    usually silent for counts.
    """
    story = Story().starts()
    for batch_id in range(5):
        story.epoch(batch_id, 60.0)
    assert verdict(story.begins(5).after(170)) is Verdict.OK
    assert verdict(story.after(15)) is Verdict.STALLED
    story.completes(5)
    assert verdict(story.after(170)) is Verdict.OK


# ---- HELD UPSTREAM ---------------------------------------------------------------------------


def test_held_upstream() -> None:
    """All is read but what an open transaction hides; over when the partition moves, and not said
    of a query that has enough to do.
    """
    story = at_work(60, lambda at_s: 0)
    story.held(story.now_ms - 120_000, gap=7).held(story.now_ms - 60_000, partition=1)
    found = judged(story.after(5).lag(0, lso_gap_records=12))
    assert found.verdict is Verdict.HELD_UPSTREAM
    assert found.reason == (
        "It has read what it may. in-0 and 1 more: an open transaction of transactional id 'theirs' "
        "hides 12 offsets, for 2 min 5 s."
    )
    slow = at_work(60, lambda at_s: 9_000, age_s=lambda at_s: 300.0).held(0)
    assert verdict(slow) is Verdict.SLOW
    for partition in range(2):
        story.tell("UpstreamMoved", topic="in", partition=partition, since_ms=0)
    assert verdict(story) is Verdict.OK


# ---- IN DOUBT --------------------------------------------------------------------------------


def test_a_decision_that_is_not_carried_out() -> None:
    """While the driver lives it has a window of its own to do so; nobody else is waited for."""
    story = at_work(20, lambda at_s: 0).begins(9).decides(9)
    assert verdict(story.after(25).lag(0)) is Verdict.OK
    assert verdict(story, is_alive=False) is Verdict.IN_DOUBT
    found = judged(story.after(10).lag(0))
    assert (found.verdict, "does not acknowledge" in found.reason) == (Verdict.IN_DOUBT, True)
    assert verdict(story.completes(9)) is Verdict.OK


def test_a_commit_that_usually_takes_long() -> None:
    story = Story().starts().begins(0).after(60).decides(0).after(20).completes(0, commit=20_000.0)
    story.begins(1).decides(1)
    for _ in range(11):
        story.after(5).lag(5, 1.0)
    assert verdict(story) is Verdict.OK
    assert verdict(story.after(10).lag(5, 1.0)) is Verdict.IN_DOUBT


def test_what_an_operator_has_finished_is_not_in_doubt() -> None:
    story = Story().starts().begins(3).decides(3).dies()
    assert verdict(story) is Verdict.IN_DOUBT
    assert verdict(story.finished(3)) is Verdict.DOWN


# ---- DOWN ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disposition", "todo"),
    [
        ("retry", "Start it again"),
        ("fenced", "Make sure that no other"),
        ("halt", "Change what the error says"),
    ],
)
def test_down_with_an_error(disposition: str, todo: str) -> None:
    """The error, and what its disposition says is to be done."""
    story = Story().starts().epoch(0).ends("SomeError", disposition, "the\n  reason. More.")
    found = judged(story.after(1))
    assert found.verdict is Verdict.DOWN
    assert found.reason == "No process runs it. It ended with SomeError: the reason. More."
    assert found.todo.startswith(todo)


def test_fenced_while_somebody_runs_it() -> None:
    """Only then a newer run is known to have the query."""
    story = Story().starts()
    for number in range(3):
        story.after(1).starts(f"i{number + 2}").ends(
            "Fenced", "fenced", "a newer run", incarnation=f"i{number + 2}"
        )
    assert judged(story, is_alive=True).todo.startswith("Leave it: a newer run has the query.")
    assert judged(story, is_alive=False).todo.startswith("Make sure that no other machine")


def test_down_and_soon_up_again() -> None:
    story = Story().starts().epoch(0).dies().tell("ProcessRestarts", delay_s=12.0, disposition="")
    assert "starts it again in 10 s" in judged(story.after(2)).todo
    assert "starts it again now" in judged(story.after(20)).todo
    gone = judged(
        Story().starts().dies().tell("ProcessRestarts", delay_s=1.0, disposition="").after(200)
    )
    assert gone.todo.startswith("Start it again; "), "nobody is left to do so"
    assert verdict(story.starts("i2")) is Verdict.OK
    story.dies(meaning="halt").tell("SupervisorEnds", status="halted")
    assert judged(story).todo.endswith("just starting is seen here once its query begins.")


def test_the_end_of_its_script_is_no_failure_of_a_query() -> None:
    """By another query's error, a signal, or because the interpreter ends: that is why it is down,
    but neither its last failure nor one of three.
    """
    story = Story().starts().epoch(0)
    others = {"error": "Unavailable: of tot", "disposition": "retry"}
    ends = [
        ({"text": "it was ended by SIGTERM"}, "It was ended by SIGTERM."),
        ({"text": "it ended with Unavailable: of tot", **others}, "It ended with Unavailable: of"),
    ]
    for life in range(4):
        cut = {"reason": "it was cut off by the end of its script", "incarnation": f"i{life + 1}"}
        found = judged(story.after(5).ends(**cut))
        assert found.reason == "No process runs it. It was cut off by the end of its script."
        assert not story.stats.has_stopped
        fields, said = ends[life % 2]
        found = judged(story.dies(is_own=False, **fields))
        assert (found.verdict, said in found.reason) == (Verdict.DOWN, True)
        assert (story.stats.failed_starts, story.stats.last_failure) == (0, None)
        assert verdict(story.after(1).starts(f"i{life + 2}")) is Verdict.OK
    found = judged(
        story.ends("RowsRefused", "halt", "no", incarnation="i5").dies(is_own=False, **others)
    )
    assert "RowsRefused" in found.reason, "what it said itself stands"
    assert story.stats.failed_starts == 1


def test_a_loop_of_failures_is_down_though_it_is_up_again_and_again() -> None:
    """From the third start in a row that fails, until something is completed. A death that is told
    of twice, by the run and by its process, is one.
    """
    story = Story().starts().epoch(0)
    for life in range(1, 4):
        assert verdict(story) is Verdict.OK
        story.after(5).begins(1).after(1).ends(
            "Unavailable", "retry", "no broker", incarnation=f"i{life}"
        )
        story.dies(error="Unavailable: no broker", disposition="retry").after(1).starts(
            f"i{life + 1}"
        )
    found = judged(story)
    assert found.verdict is Verdict.DOWN
    assert found.reason.startswith("It has failed 3 times since its last complete micro-batch")
    assert verdict(story.epoch(1)) is Verdict.OK


# ---- whatever is heard -----------------------------------------------------------------------


small, times = st.integers(0, 3), st.integers(-5, 10_000_000)
words = st.text(string.ascii_letters, max_size=5)
OF_TYPE: dict[str, Any] = {
    "str": words,
    "int": small,
    "bool": st.booleans(),
    "float": st.floats(0, 1e6),
    "str | None": st.none() | words,
    "int | None": st.none() | st.integers(0, 10**9),
    "float | None": st.none() | st.floats(0, 1e6),
    "dict[str, float]": st.dictionaries(st.sampled_from(["write", "commit"]), st.floats(0, 1e7)),
    "dict[str, int]": st.dictionaries(st.just("kafka"), times),
}
OF_NAME: dict[str, Any] = {
    "incarnation": st.sampled_from(["i1", "i2"]),
    "meaning": st.sampled_from(["done", "restart", "halt"]),
    "disposition": st.sampled_from(["", "retry", "abort", "fenced", "halt", "new"]),
    "error": st.sampled_from(["", "Unavailable"]),
    "lag_records": st.integers(0, 10**9),
    "since_ms": times,
    "trigger_ms": times,
    "doing": st.sampled_from(["Waiting for data to arrive", "Initializing sources"]),
    "topic": st.sampled_from(["a", "b"]),
    "delay_s": st.floats(0, 1e5),
    "batch_ids": st.lists(small),
}
SUPERVISORS = {
    **dict.fromkeys(("meaning", "error", "disposition", "text", "delay_s", "batch_ids"), "str"),
    **dict.fromkeys(("pid", "left"), "int"),
}
KINDS = [
    one for one in vars(events).values() if isinstance(one, type) and issubclass(one, events.Event)
]


@st.composite
def facts(draw: st.DrawFn) -> list[Fact]:
    """Any facts in any order, some of them from the past."""
    found, at_ms = [], 0
    for _ in range(draw(st.integers(0, 60))):
        at_ms += draw(st.integers(-2_000, 60_000))
        kind: Any = draw(st.sampled_from([*KINDS, *SUPERVISOR_FACTS]))
        of = SUPERVISORS
        if not isinstance(kind, str):
            of, kind = {each.name: str(each.type) for each in fields(kind)}, kind.__name__
        given = {n: draw(OF_NAME.get(n, OF_TYPE.get(t, st.just(())))) for n, t in of.items()}
        found.append(Fact(at_ms, kind, {**NAME, **given, "query_id": QUERY}))
    return found


@given(observed=facts(), pause_ms=times, is_alive=st.none() | st.booleans())
def test_exactly_one_verdict_whatever_is_heard(
    observed: list[Fact], pause_ms: int, is_alive: bool | None
) -> None:
    """It never raises, it has a reason, and the window stays bounded."""
    stats = QueryStats(QUERY)
    for fact in observed:
        stats.observe(fact)
        found = judge(at(stats, fact.at_ms + pause_ms, is_alive))
        assert found.reason
        alive = stats.is_running if is_alive is None else is_alive
        if not alive and not stats.in_doubt and not (stats.has_stopped and stats.has_read_all):
            assert found.verdict is Verdict.DOWN
        if found.verdict is not Verdict.OK:
            assert found.todo


def test_a_window_is_bounded() -> None:
    """However long a query runs, and however many topics it reads; the lowest lags are kept."""
    stats = ScriptStats()
    story = Story().starts()
    for number in range(3 * LAGS_MAX):
        story.after(5).lag(0 if number == 5 else 100 + number, 1.0).epoch(number)
    kept = story.stats
    assert len(kept.lags) <= LAGS_MAX + 1
    assert any(sample.records == 0 for sample in kept.lags)
    assert (len(kept.batches), len(kept.gaps_ms)) == (BATCHES_MAX, GAPS_MAX)
    for number in range(TOPICS_MAX + 50):
        story.lag(1, 1.0, topic=f"t{number}")
    assert len(kept.inputs) == TOPICS_MAX + 1
    assert kept.inputs[OTHERS].lag_records == 50 + 1  # one topic was there before
    for fact in story.facts:
        stats.observe(fact)
    assert stats.queries[QUERY] == kept


def test_a_topic_that_is_not_read_any_more_is_no_lag() -> None:
    """Two topics of one look are one sample; one that was deleted is forgotten after a while."""
    story = Story().starts().lag(5, 1.0, topic="a").lag(7, 2.0, topic="b")
    (sample,) = story.stats.lags
    assert (sample.records, sample.seconds) == (12, 2.0)
    for _ in range(30):
        story.after(5).lag(0, topic="a")
    assert story.stats.lags[-1].records == 0
