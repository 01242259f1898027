"""A terminal: what stands on it after all that a program has written, and ``exactum run`` with
one as its own.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.kit.environment import environment
from tests.kit.run.run_command import Command
from tests.kit.waiting import WAIT_MAX_S

_CONTROL = re.compile(r"\x1b\[(\??)([\d;]*)([@-~])")
_PART = re.compile(r"\x1b(\[[?\d;]*)?$")
"""The beginning of a control sequence, at the end of what has come."""
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")


class Screen:
    """As much of a terminal as is used: text that wraps, colours, the cursor up, lines erased, the
    cursor hidden.

    ``rows`` has the scrolled-off ones too; the last ``height`` are on the screen. What it does not
    know is an error.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.cursor_shown = True
        self._rows: list[list[str]] = [[]]
        self._continued = {0: False}
        """Whether a row goes on with the one before it, which was full."""
        self._row = self._column = 0
        self._rest = ""
        self._lock = threading.Lock()

    @property
    def at_a_new_line(self) -> bool:
        """Whether the cursor stands at the beginning of an empty row, and nothing is below."""
        return self._column == 0 and self._row == len(self._rows) - 1 and not self._rows[self._row]

    def feed(self, text: str) -> None:
        with self._lock:
            self._feed(text)

    def _feed(self, text: str) -> None:
        text = self._rest + text
        part = _PART.search(text)
        self._rest = text[part.start() :] if part else ""
        text = text[: part.start()] if part else text
        at = 0
        while at < len(text):
            found = _CONTROL.match(text, at)
            if found:
                self._control(found[1] + found[3], found[2])
                at = found.end()
            else:
                self._character(text[at])
                at += 1

    def lines(self) -> list[str]:
        """All that was written and not erased, each line whole, however it was wrapped."""
        found: list[str] = []
        with self._lock:
            for number, row in enumerate(self._rows):
                text = "".join(row)
                if self._continued.get(number):
                    found[-1] += text
                else:
                    found.append(text)
        return [line.rstrip() for line in found]

    def visible(self) -> list[str]:
        """The rows on the screen."""
        with self._lock:
            return ["".join(row).rstrip() for row in self._rows[self._top :]]

    @property
    def _top(self) -> int:
        return max(0, len(self._rows) - self.height)

    def _control(self, kind: str, argument: str) -> None:
        if kind == "m":
            return
        if kind == "A":
            self._row = max(self._top, self._row - int(argument or 1))
        elif (kind, argument) == ("K", "2"):
            self._rows[self._row] = []
            self._continued[self._row] = False
        elif argument == "25" and kind in ("?l", "?h"):
            self.cursor_shown = kind == "?h"
        else:
            raise AssertionError(f"the terminal does not know {kind!r} {argument!r}")

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down(continued=False)
        else:
            assert character.isprintable(), f"the terminal does not know {character!r}"
            if self._column == self.width:
                self._down(continued=True)
                self._column = 0
            row = self._rows[self._row]
            row += " " * (self._column - len(row))
            row[self._column : self._column + 1] = character
            self._column += 1

    def _down(self, continued: bool) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])
        self._continued[self._row] = continued


class TerminalCommand(Command):
    """One ``exactum run`` on a terminal; ``stdout`` may be a file instead. ``screen`` is what a
    person sees.
    """

    def __init__(
        self,
        folder: Path,
        script: Path,
        options: Sequence[str],
        arguments: Sequence[str] = (),
        *,
        width: int = 100,
        height: int = 30,
        stdout: IO[bytes] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "run.log"
        self._log.touch()
        self.screen = Screen(width, height)
        self.broken: BaseException | None = None
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        command = [
            sys.executable,
            "-m",
            "exactum.ops.cli",
            "run",
            str(script),
            *options,
            "--",
            *arguments,
        ]
        env = {
            name: value
            for name, value in environment().items()
            if name not in (*_OURS, "PYTHONUNBUFFERED")
        }
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            cwd=folder,
            env={**env, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._reader.join(WAIT_MAX_S)
        os.close(self._master)

    def ends(self, timeout_s: float = WAIT_MAX_S) -> int:
        status = super().ends(timeout_s)
        self._reader.join(WAIT_MAX_S)
        if self.broken is not None:
            raise self.failed(f"the terminal could not go on: {self.broken!r}")
        return status

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self._log.open("ab", buffering=0) as log:
            while True:
                try:
                    data = os.read(self._master, 1 << 16)
                except OSError:  # nobody has the other end any more
                    return
                log.write(data)
                try:
                    self.screen.feed(decoder.decode(data))
                except (AssertionError, ValueError) as error:
                    self.broken = self.broken or error
