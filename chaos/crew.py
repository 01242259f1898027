"""Cells played on several stages at once, each in a process of its own; outcomes as they come."""

from __future__ import annotations

import multiprocessing as mp
import queue
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from chaos.matrix import FAULT, Cell
from chaos.scene import Outcome, played
from chaos.stage import Setting, Stage
from exactum.errors import LocalServerError

END = ""
LOOK_EVERY_S = 1.0


def setting_of(cell: Cell) -> Setting:
    """What the cell asks of its stage."""
    if cell.fault == "ids-expired":
        return Setting.FORGETFUL
    return Setting.CLOCK if FAULT[cell.fault].kind == "clock" else Setting.PLAIN


def play(cells: Sequence[Cell], seed: int, processes: int) -> Iterator[Outcome]:
    """Play them, those of one setting together, and yield the outcomes in the order in which they
    end.

    Closing the iterator ends the processes, each after the cell that it plays.
    """
    context = mp.get_context("spawn")
    waiting: Any = context.Queue()
    outcomes: Any = context.Queue()
    ending = context.Event()
    order = list(Setting)
    for cell in sorted(cells, key=lambda cell: order.index(setting_of(cell))):
        waiting.put(cell.name)
    crew = [
        context.Process(
            target=_work, args=(waiting, outcomes, ending, seed), name=f"stage-{number}"
        )
        for number in range(min(processes, len(cells)))
    ]
    for _ in crew:
        waiting.put(END)
    for process in crew:
        process.start()
    left = len(cells)
    try:
        while left:
            try:
                outcome = outcomes.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                if not any(process.is_alive() for process in crew):
                    raise RuntimeError(
                        f"all stages have ended, and {left} cells are left"
                    ) from None
                continue
            left -= 1
            yield outcome
    finally:
        ending.set()
        for process in crew:
            process.join()
        for one in (waiting, outcomes):
            one.cancel_join_thread()
            one.close()


def _work(waiting: Any, outcomes: Any, ending: Any, seed: int) -> None:
    """One process: a stage, and cells until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # The first process tells us when to end. Not SIG_IGN: the servers would inherit it.
        signal.signal(number, lambda *_: None)
    stage: Any = _NoStage()
    setting: Setting | None = None
    try:
        while _is_wanted(ending) and (name := waiting.get()) != END:
            cell = Cell.of(name)
            if setting_of(cell) is not setting:
                stage.close()
                setting = setting_of(cell)
                stage = Stage(setting)
                stage.open()
            outcome = played(stage, cell, seed)
            outcomes.put(outcome)
            if not _is_whole(stage, outcome):
                setting = None
    finally:
        stage.close()


def _is_wanted(ending: Any) -> bool:
    """Whether another cell is to be played: not when the first process was told to end, or is
    gone.
    """
    parent = mp.parent_process()
    return not ending.is_set() and parent is not None and parent.is_alive()


def _is_whole(stage: Stage, outcome: Outcome) -> bool:
    """Whether the next cell may be played on this stage."""
    try:
        stage.tidy()
    except LocalServerError:
        return False
    return outcome.verdict != "void"


class _NoStage:
    """What is closed before the first stage is made."""

    def close(self) -> None:
        """Nothing."""
