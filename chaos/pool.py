"""Cells played on several sets of servers at once, each in a process of its own; outcomes as
they come.
"""

from __future__ import annotations

import multiprocessing as mp
import queue
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from chaos.cell_run import Outcome, played
from chaos.matrix import FAULT, Cell
from chaos.servers import Servers, Setting
from exactum.errors import LocalServerError

END = ""
LOOK_EVERY_S = 1.0


def setting_of(cell: Cell) -> Setting:
    """What the cell asks of its servers."""
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
    workers = [
        context.Process(
            target=_work, args=(waiting, outcomes, ending, seed), name=f"servers-{number}"
        )
        for number in range(min(processes, len(cells)))
    ]
    for _ in workers:
        waiting.put(END)
    for process in workers:
        process.start()
    left = len(cells)
    try:
        while left:
            try:
                outcome = outcomes.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                if not any(process.is_alive() for process in workers):
                    raise RuntimeError(
                        f"all sets of servers have ended, and {left} cells are left"
                    ) from None
                continue
            left -= 1
            yield outcome
    finally:
        ending.set()
        for process in workers:
            process.join()
        for one in (waiting, outcomes):
            one.cancel_join_thread()
            one.close()


def _work(waiting: Any, outcomes: Any, ending: Any, seed: int) -> None:
    """One process: its servers, and cells until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # The first process tells us when to end. Not SIG_IGN: the servers would inherit it.
        signal.signal(number, lambda *_: None)
    servers: Any = _NoServers()
    setting: Setting | None = None
    try:
        while _is_wanted(ending) and (name := waiting.get()) != END:
            cell = Cell.of(name)
            if setting_of(cell) is not setting:
                servers.close()
                setting = setting_of(cell)
                servers = Servers(setting)
                servers.open()
            outcome = played(servers, cell, seed)
            outcomes.put(outcome)
            if not _is_whole(servers, outcome):
                setting = None
    finally:
        servers.close()


def _is_wanted(ending: Any) -> bool:
    """Whether another cell is to be played: not when the first process was told to end, or is
    gone.
    """
    parent = mp.parent_process()
    return not ending.is_set() and parent is not None and parent.is_alive()


def _is_whole(servers: Servers, outcome: Outcome) -> bool:
    """Whether the next cell may be played on these servers."""
    try:
        servers.tidy()
    except LocalServerError:
        return False
    return outcome.verdict != "void"


class _NoServers:
    """What is closed before the first servers are made."""

    def close(self) -> None:
        """Nothing."""
