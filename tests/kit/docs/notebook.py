"""Notebooks, run without Jupyter: their code cells one after the other, with a broker that is
there.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.local import LocalKafka

OWN_BROKER = "kafka = LocalKafka()\n"
"""The line of the first code cell in whose place the tests' broker is given."""
VARIES = (
    (re.compile(r"\S+/checkpoint\b"), "FOLDER/checkpoint"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"process \d+ on \S+ since .*"), "process"),
)
"""What is another one in every run, and what stands for it."""


@dataclass(frozen=True)
class CodeCell:
    """``said`` is what the file says that it printed."""

    source: str
    said: str


@dataclass(frozen=True)
class Notebook:
    path: Path

    @property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text()))

    @property
    def cells(self) -> list[CodeCell]:
        return [
            CodeCell("".join(cell["source"]), "".join(_texts(cell)))
            for cell in self.content["cells"]
            if cell["cell_type"] == "code"
        ]

    def run(self, kafka: LocalKafka) -> list[str]:
        """What each code cell prints now."""
        first, *others = [cell.source for cell in self.cells]
        assert OWN_BROKER in first, f"{self.path}: its first code cell starts a broker"
        exec("from exactum.local import LocalKafka", names := {"__name__": "__main__"})
        names["kafka"] = kafka
        said = []
        for number, source in enumerate([first.replace(OWN_BROKER, ""), *others], start=1):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(source, f"{self.path.name}, code cell {number}", "exec"), names)
            said.append(printed.getvalue())
        return said


def _texts(cell: dict[str, Any]) -> list[str]:
    return [line for output in cell["outputs"] for line in output["text"]]


def steady(text: str) -> str:
    """Without what is another one in every run."""
    for pattern, stands_for in VARIES:
        text = pattern.sub(stands_for, text)
    return text.strip()
