"""Results: one JSON object a line, appended as they come, and read again for tables and
pictures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report

ERROR_KEPT = 1_500
Row = Mapping[str, Any]
"""``phase`` names its kind; ``exact`` says whether the output of its run was."""


class Results:
    """The file of one benchmark; rows of an earlier run in the same file stay and count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[Row] = read(path) if path.exists() else []

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        report.console.print(" ".join(f"{name}={_short(value)}" for name, value in row.items()))

    def drain_rates(self, contender: str, size: int) -> list[float]:
        """Records per second of its exact copies so far."""
        return [
            row["rate_per_s"]
            for row in chosen(self.rows, phase="drain", job="copy", bytes=size, contender=contender)
            if row.get("exact") and row.get("rate_per_s")
        ]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def chosen(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def shortened(error: Exception) -> str:
    """What failed stands at the beginning, and why mostly at the end."""
    text = str(error)
    return (
        text
        if len(text) <= ERROR_KEPT
        else f"{text[: ERROR_KEPT // 2]} ... {text[-ERROR_KEPT // 2 :]}"
    )


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
