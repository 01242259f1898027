"""The command that plays random schedules: it counts what happened, and it catches what is
broken.
"""

from __future__ import annotations

import random

import pytest
from rich.console import Console

from model.broken import BROKEN
from model.schedules import caught_after, play_chunk, run

pytestmark = pytest.mark.slow

SEED = random.SystemRandom().randrange(2**31)
CAUGHT_SOON = (
    "no fence",
    "redeliver nothing",
    "commit before the record",
    "any record will do",
    "prune too early",
)


@pytest.mark.deep
def test_random_schedules_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """They keep every promise, most of them differ, and all that can happen happens."""
    print(f"seed {SEED}")
    assert run(Console(width=120), SEED, 600, 2)
    assert "No promise was broken" in capsys.readouterr().out
    tally = play_chunk((SEED, 0, 600))
    assert tally.runs == 600
    assert tally.disturbed > 300
    assert len(set(tally.traces)) > 300
    for name in (
        "ended: Crash",
        "refused",
        "reply lost",
        "sent twice",
        "EpochRedelivered",
        "transactions expired",
    ):
        assert any(key.startswith(name) for key in tally.times), name


@pytest.mark.parametrize("name", CAUGHT_SOON)
def test_random_schedules_catch_what_is_broken(name: str) -> None:
    """The same schedules, with a broken protocol. The slower ones are caught by ``python -m
    model broken``.
    """
    print(f"seed {SEED}")
    broken = next(b for b in BROKEN if b.name == name)
    caught = caught_after(broken, SEED)
    assert caught is not None
    print(f"{name}: after {caught[0]} schedules, by {caught[1]}: {caught[2]}")
