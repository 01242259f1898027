"""A page as its reader follows it: what to type, in which terminal, what to save, what to see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_TERMINAL = re.compile(r"\bterminal (\d)")
_SAVED = re.compile(r"[Ss]ave this as\s`([^`]+)`")


@dataclass
class PageStep:
    """Commands for one terminal, or a file to save.

    Attributes:
        terminal: the number that the text before the block names, 1 where it names none.
        commands: what to type, line by line; empty where a file is saved.
        saved: the name of the file to save, and its content.
        seen: the lines that the page says one should see then; ``...`` stands for anything.
        seen_in: the terminal in which they are to be seen.
    """

    terminal: int = 1
    commands: list[str] = field(default_factory=list)
    saved: tuple[str, str] | None = None
    seen: list[str] = field(default_factory=list)
    seen_in: int = 1


def steps(page: Path) -> Iterator[PageStep]:
    """The steps of a page: its ``sh`` blocks, each with the ``text`` block behind it, and the
    ``python`` blocks that are to be saved. A ``python`` block that only shows something is none, nor
    are ``yaml`` and ``sql``.
    """
    text = page.read_text()
    step: PageStep | None = None
    before = 0
    for block in _BLOCK.finditer(text):
        between, before = text[before : block.start()], block.end()
        kind, content = block[1], block[2]
        terminals = _TERMINAL.findall(between)
        if kind == "text":
            assert step is not None, f"{page}: nothing was done before: {content}"
            step.seen = content.splitlines()
            step.seen_in = int(terminals[-1]) if terminals else step.terminal
            continue
        if kind in ("yaml", "sql") or (kind == "python" and not _SAVED.search(between)):
            continue
        if step is not None:
            yield step
        step = PageStep(terminal=int(terminals[-1]) if terminals else 1)
        if kind == "python":
            step.saved = (_SAVED.findall(between)[-1], content)
        else:
            assert kind == "sh", f"{page}: what is a block of {kind}?"
            step.commands = content.splitlines()
    if step is not None:
        yield step


def pattern(line: str) -> str:
    """The pattern of a line that should be seen."""
    return ".*".join(re.escape(part.strip()) for part in line.split("..."))
