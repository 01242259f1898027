"""The TLA+ models hold, and every mutation of them breaks the promise that it is said to break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from model.checks import LARGE, SMALL, Check
from model.tlc import FOLDER, ask, config_of, read_answer, run

pytestmark = pytest.mark.slow


@pytest.mark.deep
def test_the_models_hold_and_every_mutation_is_caught() -> None:
    """The small checks, all of them, by TLC; the table is what ``python -m model tla`` prints."""
    assert run(Console(width=120), large=False)


@pytest.mark.deep
def test_a_wrong_answer_is_noticed() -> None:
    """A mutation that breaks nothing, and one that breaks another promise than it is said to,
    are both off.
    """
    wrong = [
        Check("SlotLog", "Slots", "no such mutation", "NoSlotTwice"),
        Check("SlotLog", "Slots", "no_look", "TheHighestFloorStays"),
        Check("SlotLog", "Slots", "no_look"),
    ]
    for answer in ask(wrong):
        assert not answer.as_expected, answer


def test_a_failure_of_tlc_is_no_answer() -> None:
    """Neither a crash of the checker nor an unfinished run may pass for a model that holds."""
    check = Check("SlotLog", "Slots")
    unfinished = (
        "Progress(3) at ...: 723 states generated, 391 distinct states found, 191 states left on "
        "queue."
    )
    for output in ("", "Error: TLC threw an unexpected exception.", unfinished):
        assert not read_answer(check, output, 0.0).as_expected
    held = "No error has been found.\n20 states generated, 5 distinct states found, 0 states left on queue."
    assert read_answer(check, held, 0.0).as_expected
    assert not read_answer(replace(check, broken="NoSlotTwice"), held, 0.0).as_expected


@pytest.mark.parametrize("module", sorted(p.stem for p in FOLDER.glob("*.tla")))
def test_every_mutation_of_a_module_is_checked(module: str) -> None:
    """No ``Broken("...")`` in a module is left without a check, and no check names one that is
    not there.
    """
    text = (FOLDER / f"{module}.tla").read_text()
    written = {part.partition('"')[0] for part in text.split('Broken("')[1:]}
    assert written == {c.mutation for c in (*SMALL, *LARGE) if c.module == module and c.broken}


def test_every_configuration_is_checked() -> None:
    """No .cfg lies about unused, and each can be made."""
    checks = [*SMALL, *LARGE]
    assert {c.config for c in checks} == {Path(p).stem for p in FOLDER.glob("*.cfg")}
    for check in checks:
        assert f'Mutation = "{check.mutation}"' in config_of(check)
