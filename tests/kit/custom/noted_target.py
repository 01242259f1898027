"""Targets without transactions for ``WriteAheadSink``: files that note every request, in the
order of arrival.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Target:
    """Notes each request as one line; a reader may look at all of them, or at one for each key."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def send(self, batch: Any, key: str) -> None:
        line = json.dumps({"key": key, "rows": batch.to_pylist()}) + "\n"
        with self.file.open("ab", buffering=0) as file:
            file.write(line.encode())

    def requests(self) -> list[tuple[str, list[Any]]]:
        """(key, rows) of each request."""
        if not self.file.exists():
            return []
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [(line["key"], [tuple(row.values()) for row in line["rows"]]) for line in lines]

    def repeats(self) -> int:
        """Requests beyond the first of their key."""
        keys = [key for key, _ in self.requests()]
        return len(keys) - len(set(keys))

    def deduplicated(self) -> list[Any]:
        """The rows that a target which keeps the keys has; also checks that a key is always the
        same rows.
        """
        by_key: dict[str, list[Any]] = {}
        for key, rows in self.requests():
            assert by_key.setdefault(key, rows) == rows, f"{key} came with other rows"
        return [row for rows in by_key.values() for row in rows]
