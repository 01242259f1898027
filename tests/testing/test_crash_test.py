"""Kill and compare, on jobs that start fast and of which it is known what they do. (A job that doubles:
tests/docs/test_testing_your_job.py. Rows that ``read=`` gives: tests/targets/test_orders_to_three.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import ExactumError, SettingRefused
from exactum.local import LocalKafka
from exactum.ops.crash_test.crash_test import CrashTest
from exactum.ops.crash_test.killing import KillMoment, plan_kills
from exactum.testing import CrashRun, CrashVerdict, OutputNotExact
from tests.kit.environment import ROOT
from tests.kit.errors import raised
from tests.kit.waiting import WAIT_MAX_S

JOB = ROOT / "tests" / "kit" / "testing" / "plain_job.py"
RECORDS = [(f"k{number % 10}", f"order {number}") for number in range(1_200)]

Tested = Callable[..., CrashVerdict]


@pytest.fixture
def tested(kafka: LocalKafka, tmp_path: Path) -> Tested:
    """Crash the plain job in a mode. What it copies is what is expected of it."""
    crash_test = CrashTest(kafka, tmp_path)

    def run(mode: str, **options: Any) -> CrashVerdict:
        def arguments(run: CrashRun) -> Sequence[str]:
            return [mode, run.bootstrap_servers, run.input, run.output, run.checkpoint]

        given: dict[str, Any] = {
            "expected": lambda records: records,
            "timeout_s": WAIT_MAX_S,
            **options,
        }
        return crash_test(JOB, arguments, given.pop("records", RECORDS), **given)

    return run


def refused(tested: Tested, mode: str, **options: Any) -> CrashVerdict:
    with pytest.raises(OutputNotExact) as caught:
        tested(mode, **options)
    print(caught.value)
    return caught.value.verdict


@pytest.mark.deep
def test_a_job_that_keeps_its_position_early_loses(tested: Tested) -> None:
    verdict = refused(tested, "early")
    assert verdict.difference.lost
    assert not (verdict.difference.doubled or verdict.difference.unexpected)


@pytest.mark.deep
def test_a_job_that_writes_both_in_one_transaction_is_exact(
    tested: Tested, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the run that nobody kills; it ends by itself, and is seen to be done by that."""
    verdict = tested("exact", expected=None, kills=2)
    assert (verdict.expected, verdict.found) == (len(RECORDS), len(RECORDS))
    assert len(verdict.kills) == 2
    assert f"EXACTUM_CRASH_SEED={verdict.seed}" in capsys.readouterr().out


@pytest.mark.deep
def test_a_job_that_alters(tested: Tested, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values depend on where its lives begin. Beside a run that nobody killed, that shows. The
    seed comes from the environment.
    """
    monkeypatch.setenv("EXACTUM_CRASH_SEED", "77")

    def batches(rows: Iterable[Any]) -> list[Any]:
        return [(value.partition("-")[0], value) for _, value in rows]

    def first_batch(records: Sequence[Any]) -> list[Any]:
        return [(None, f"{value}-1") for _, value in records]

    verdict = refused(tested, "altered", expected=first_batch, compare=batches, kills=1)
    assert verdict.difference.altered
    assert not verdict.difference.lost
    assert verdict.seed == 77


def test_a_job_that_fails_by_itself_is_no_verdict(tested: Tested) -> None:
    with raised(ExactumError, "exit status 1", "it cannot go on"):
        tested("fails")


@pytest.mark.deep
def test_a_job_that_ends_before_it_is_killed_is_no_verdict(tested: Tested) -> None:
    with raised(ExactumError, "kill 1 of 1"):
        tested("ends", kills=1)


@pytest.mark.deep
def test_a_job_that_writes_nothing_is_no_verdict(tested: Tested) -> None:
    with raised(SettingRefused, "CRASH_TEST", "plain_job"):
        tested("silent", expected=None, kills=1)


@pytest.mark.deep
def test_a_comparison_of_nothing_is_no_verdict(tested: Tested) -> None:
    """What leaves out every row lets every job pass, also one that doubles."""
    with raised(SettingRefused, "CRASH_TEST", "compare=", "1,200 rows"):
        tested("exact", compare=lambda rows: [row for row in rows if row == "k1"], kills=1)


@pytest.mark.parametrize(
    ("options", "facts"),
    [({"kills": 0}, (0,)), ({"records": RECORDS[:29]}, (30, 29))],
    ids=["no kill", "few records"],
)
def test_what_would_show_nothing_is_refused(
    tested: Tested, options: dict[str, Any], facts: tuple[int, ...]
) -> None:
    with raised(SettingRefused, "CRASH_TEST", *facts):
        tested("late", **options)


def test_a_missing_script_is_refused(kafka: LocalKafka, tmp_path: Path) -> None:
    with raised(SettingRefused, "CRASH_TEST", "nowhere.py", Path.cwd()):
        CrashTest(kafka, tmp_path)("nowhere.py", lambda run: [], RECORDS)


def test_a_seed_gives_the_same_kills() -> None:
    """And the moments take turns."""
    moments = [KillMoment.OUTPUT, KillMoment.BATCH, KillMoment.DONE, KillMoment.RANDOM]
    assert plan_kills(7, 3, moments) == plan_kills(7, 3, moments)
    assert plan_kills(7, 3, moments) != plan_kills(7, 4, moments)
    assert len(plan_kills(7, 3, moments)) == 7
    assert {kill.moment for kill in plan_kills(4, 5, moments)} == set(moments)
