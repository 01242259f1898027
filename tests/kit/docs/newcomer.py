"""Somebody who follows a page, with as many terminals as it says."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.kit.docs.steps import PageStep, pattern
from tests.kit.process_tree import ProcessTree

LASTING = ("make servers", "make run")
STARTED = r"started job\.py as process (\d+)"


class Terminal(ProcessTree):
    """One in which a command of a shell runs. Who makes one closes it."""

    def __init__(self, command: str, folder: Path, env: Mapping[str, str], log: Path) -> None:
        super().__init__(["/bin/sh", "-c", command], log, folder, env)
        self.command = command

    def interrupt(self) -> None:
        """Ctrl-C, which goes to every process of the terminal's foreground, and its end."""
        os.killpg(self._process.pid, signal.SIGINT)
        self.wait()

    def close(self) -> None:
        """End the command if it still runs: by Ctrl-C, so that it ends what it has started
        elsewhere; what is left of it afterwards, by force. Idempotent.
        """
        try:
            if self.alive:
                self.interrupt()
        finally:
            self.kill()


class Newcomer:
    """Types, looks, and forgets nothing: the folder and the environment of each terminal.

    Commands of ``LASTING`` run on while others are typed. Where the page says 9092, ``port`` is
    typed; where it says PROCESS, the process that ``exactum run`` in terminal 2 started last.
    """

    def __init__(self, folder: Path, env: dict[str, str], port: int) -> None:
        self._home = folder
        self._env = env
        self._port = port
        self.folder = folder
        self.terminals: list[Terminal] = []
        self._last: dict[int, Terminal] = {}

    def follow(self, step: PageStep) -> None:
        """Do the step, and see what there is to see."""
        starts = {terminal: self._so_far(terminal) for terminal in self._last}
        printed = "".join(self._type(step.terminal, command) for command in step.commands)
        lasting = self._last.get(step.seen_in)
        if step.seen_in == step.terminal and step.commands[-1] not in LASTING:
            for line in map(self._ported, step.seen):
                assert re.search(pattern(line), printed), f"not seen: {line}\n{printed[-3000:]}"
        elif lasting is not None:
            for line in map(self._ported, step.seen):
                lasting.until(self._once_more(lasting, line, starts.get(step.seen_in, "")), line)

    @staticmethod
    def _once_more(terminal: Terminal, line: str, earlier: str) -> Callable[[], bool]:
        before = len(re.findall(pattern(line), earlier))
        return lambda: len(re.findall(pattern(line), terminal.log)) > before

    def _so_far(self, terminal: int) -> str:
        return self._last[terminal].log

    def _ported(self, line: str) -> str:
        return line.replace("9092", str(self._port))

    def _type(self, terminal: int, command: str) -> str:
        """Type the command, and return what it printed; nothing yet of one that lasts."""
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return ""
        if command.startswith(". "):  # what a shell does to itself
            self.activate(self.folder / command.removeprefix(". ").removesuffix("/bin/activate"))
            return ""
        if "PROCESS" in command:
            (pid,) = re.findall(STARTED, self._last[2].log)[-1:]
            command = command.replace("PROCESS", pid)
        typed_as_lasting = command in LASTING
        command = self._ported(command)
        log = self._home / f"terminal-{len(self.terminals)}.log"
        typed = Terminal(command, self.folder, self._env, log)
        self.terminals.append(typed)
        if typed_as_lasting:
            self._last[terminal] = typed
            return ""
        status = typed.wait()
        assert status == 0, typed.failed(f"{command} ended with {status}")
        return typed.log

    def activate(self, environment: Path) -> None:
        """What ``. bin/activate`` does."""
        self._env["PATH"] = f"{environment / 'bin'}{os.pathsep}{self._env['PATH']}"
        self._env["VIRTUAL_ENV"] = str(environment)

    def interrupt(self) -> None:
        """Ctrl-C in the terminals whose commands last, the youngest first."""
        for terminal in sorted(self._last, reverse=True):
            self._last[terminal].interrupt()
