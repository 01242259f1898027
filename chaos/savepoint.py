"""The savepoint that is under way while a fault happens: whole or refused, and a fork of it is
exact.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from chaos.savepoint_process import Made
from chaos.servers import environment
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.storage.folder import Folder
from tests.kit.process_tree import ProcessTree

if TYPE_CHECKING:
    from chaos.cell_run import CellRun

EXCUSED = {"checkpoint": frozenset({"CheckpointRefused"}), "disk": frozenset({"Unavailable"})}
"""With what a savepoint may be refused, by the kind of the fault. The others do not touch what
it copies.
"""


class SavepointFailure(AssertionError):
    """A savepoint was refused for nothing, or what was made of it is wrong."""


class Savepoint:
    """One savepoint in the making, held half-way by ``chaos.savepoint_process``."""

    def __init__(self, cell_run: CellRun) -> None:
        self._cell_run = cell_run
        self._path = cell_run.folder / "savepoint"
        self._folder = cell_run.servers.folder / f"{cell_run.folder.name}-savepoint"
        self._folder.mkdir()
        checkpoint = cell_run.query_oracle.checkpoint.folder
        words = [sys.executable, "-m", "chaos.savepoint_process"]
        self._process = ProcessTree(
            [*words, checkpoint, self._path, self._folder],
            self._folder / "log",
            self._folder,
            environment(),
        )
        self._until("reached")

    def let_go(self) -> None:
        (self._folder / "go").touch()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()

    def made(self) -> Made:
        """How it ended; it is let go for that."""
        self.let_go()
        self._until("result")
        self._process.wait()
        return Made(**json.loads((self._folder / "result").read_text()))

    def check(self) -> None:
        """It is whole, and a fork of it into fresh targets writes exactly what comes after its
        epoch; or it was refused by an error that the fault excuses, and nothing of its name is
        there.

        Raises:
            AssertionError: neither.
        """
        cell_run, made = self._cell_run, self.made()
        if made.error:
            if made.error not in EXCUSED.get(cell_run.fault.kind, ()):
                raise SavepointFailure(
                    f"the savepoint was refused with {made.error}: {made.message}"
                )
            if self._path.exists():
                raise SavepointFailure(
                    f"{self._path} is there although the savepoint was refused: {made.message}"
                )
            cell_run.notes.append(f"savepoint refused ({made.error}: {made.message[:100]})")
            return
        verify(Folder(self._path))
        fork = cell_run.query_oracle.fork(made.batch_id)
        fork.open()
        restore(self._path, str(fork.checkpoint.folder), Identity.FORK)
        cell_run.run_dry(fork)
        fork.check_exact()
        cell_run.notes.append(f"savepoint of epoch {made.batch_id}, its fork is exact")

    def _until(self, name: str) -> None:
        self._process.until((self._folder / name).exists, f"{name} is there")
