"""The coordinator under every interleaving, and proof that the simulation can fail. (Random schedules:
tests/model.)
"""

from __future__ import annotations

import re
import time

import pytest

from model.broken import BROKEN, Broken
from model.schedule import Schedule, Setup
from model.simulation import Violation, explore, outcomes, replay

pytestmark = pytest.mark.slow


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("pattern", "setup", "stride"),
    [
        ("a? b? a* b*", Setup(), 1),
        ("a? b? b! a*", Setup(batches=1, retried=1), 1),
        ("a? b? a? b* a*", Setup(batches=1), 3),
        pytest.param("a? b? a? b* a*", Setup(batches=1), 1, marks=pytest.mark.deep),
        ("a? a! x b? b! t c*", Setup(batches=1), 1),
        ("a? x b? x a* b*", Setup(batches=1), 1),
        ("a? b? c* a* b*", Setup(batches=2), 2),
        ("a? t b? a! x b*", Setup(batches=2, participants=2), 2),
        ("a? b? a? x b? a* b*", Setup(batches=1), 3),
        ("a? a~ b? a* b*", Setup(batches=1), 1),
        ("a? a- a* b? a* b*", Setup(batches=1), 1),
        ("a? a+ b? a* b*", Setup(batches=1, retried=1, sweeps_own=True), 1),
        ("a? x A? a? A* b*", Setup(batches=1), 2),
        ("a? x b? a* c*", Setup(batches=1, participants=2, forgets=True), 2),
        ("a? b? a* b*", Setup(batches=3, slots=True), 5),
        ("a? D? a? D* a* b*", Setup(batches=1, retried=1), 2),
        ("a? x b? D? b? D* a* b*", Setup(batches=1), 2),
        ("a? D? D~ a? D* b*", Setup(batches=1), 2),
        ("a? l b? a* b*", Setup(batches=2), 1),
        ("a? l b? D? l b* D* a*", Setup(batches=2, tasks=2, sweeps_own=True), 6),
    ],
)
def test_every_schedule_of_a_pattern_keeps_the_promise(
    pattern: str, setup: Setup, stride: int
) -> None:
    """Exhaustive up to the pattern's switches: each batch once everywhere, nothing open, newest
    wins.
    """
    keeps_the_promise(pattern, setup, stride)


@pytest.mark.parametrize(
    ("pattern", "setup", "stride"),
    [
        ("a? G b? a* b*", Setup(batches=3), 2),
        ("a? G a? b? G c*", Setup(batches=3, tasks=2, participants=2), 9),
        ("a? G b? D? b* D*", Setup(batches=3, sweeps_own=True), 6),
        ("a? H b? H c*", Setup(batches=3), 2),
        ("a? H b? c? b* c*", Setup(batches=2, participants=2, tasks=2), 8),
        ("a? H b? G c*", Setup(batches=3, slots=True, prunes=False), 7),
    ],
)
def test_a_target_or_a_log_that_was_put_back(pattern: str, setup: Setup, stride: int) -> None:
    """Seconds of work: all are played at each commit."""
    keeps_the_promise(pattern, setup, stride)


@pytest.mark.parametrize(
    ("pattern", "setup", "stride"),
    [
        ("a? b? a* b*", Setup(plans_differ=True), 3),
        pytest.param("a? b? a* b*", Setup(plans_differ=True), 1, marks=pytest.mark.deep),
        ("b3 a? b? c? a* b*", Setup(batches=2, tasks=2, plans_differ=True), 5),
        ("b3 a? b1 a? b* a*", Setup(batches=3, slots=True, plans_differ=True), 5),
    ],
)
def test_drivers_that_plan_a_batch_apart(pattern: str, setup: Setup, stride: int) -> None:
    """Each row once, or the last start is refused, and what is decided is right."""
    keeps_the_promise(pattern, setup, stride)


def keeps_the_promise(pattern: str, setup: Setup, stride: int) -> None:
    began_s = time.perf_counter()
    runs = sum(1 for _ in explore(setup, pattern, stride=stride))
    print(f"{pattern} on {setup}: {runs} schedules, {runs / (time.perf_counter() - began_s):.0f}/s")
    assert runs > 50


def test_a_schedule_replays_the_same_run() -> None:
    """The text of a schedule is all that is needed to see a run again."""
    for text in ("b2p2t2r1k: a14 b9 x a3 t b! c*", "b3p1t2r0kogsd: a17 a~ b9 b+ A2 x A- c*"):
        assert str(Schedule.parse(text)) == text
        assert replay(text) == replay(text)
    with pytest.raises(ValueError, match="Not a schedule"):
        Schedule.parse("b2: what")


# ---- broken on purpose ---------------------------------------------------------------------------


NOT_COMPARED = [
    broken for broken in BROKEN if re.search("[GH]", broken.pattern) or broken.setup.plans_differ
]
OTHERS = [broken for broken in BROKEN if broken not in NOT_COMPARED]


@pytest.mark.variants(1)
@pytest.mark.parametrize("broken", OTHERS, ids=lambda broken: broken.name)
def test_a_broken_protocol_is_found(broken: Broken) -> None:
    """The simulation finds what each broken protocol does, and its schedule replays to the same
    failure.
    """
    is_found(broken)


@pytest.mark.parametrize("broken", NOT_COMPARED, ids=lambda broken: broken.name)
def test_a_protocol_that_does_not_compare_is_found(broken: Broken) -> None:
    """With a target, or with the log: after one was put back; or with the offsets of a batch."""
    is_found(broken)


def is_found(broken: Broken) -> None:
    runs = 0
    for outcome in outcomes(broken.setup, broken.pattern, broken.system):
        runs += 1
        if broken.damage in str(outcome.violations):
            break
    else:
        pytest.fail(f"{broken.name} went unnoticed in {runs} schedules of {broken.pattern}")
    print(f"{broken.name}: {outcome.schedule}, found after {runs} schedules: {outcome.violations}")
    with pytest.raises(Violation, match=re.escape(str(outcome.schedule))):
        replay(str(outcome.schedule), broken.system)
    replay(str(outcome.schedule))
