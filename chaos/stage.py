"""The servers on which one process plays its cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.cell_run import CellRun
from chaos.matrix import FAULT, Cell
from chaos.servers import Servers, Setting


def setting_of(cell: Cell) -> Setting:
    """What the cell asks of its servers."""
    if cell.fault == "ids-expired":
        return Setting.FORGETFUL
    return Setting.CLOCK if FAULT[cell.fault].kind == "clock" else Setting.PLAIN


class Stage:
    """They are made anew where a cell asks for others, and where a play has failed."""

    def __init__(self) -> None:
        self._servers: Servers | None = None
        self._setting = Setting.PLAIN

    @contextmanager
    def of(self, cell: Cell) -> Iterator[Servers]:
        if self._servers is None or setting_of(cell) is not self._setting:
            self.close()
            self._setting = setting_of(cell)
            servers = Servers(self._setting)
            servers.open()
            self._servers = servers
        try:
            yield self._servers
            self._servers.tidy()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.close()


def play(stage: Stage, name: str, seed: int) -> None:
    """The query is held at the point, the fault happens, and in the end every target has every
    posting once.
    """
    print(f"again: make chaos CELL={name} SEED={seed}")
    cell = Cell.of(name)
    with stage.of(cell) as servers:
        cell_run = CellRun(servers, cell, seed)
        try:
            cell_run.play()
        finally:
            cell_run.close()
            print(*cell_run.notes, *cell_run.stops, sep="\n")
