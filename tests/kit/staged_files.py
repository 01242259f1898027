"""Which staged files wait, by their names alone: nothing here is code under test."""

from __future__ import annotations

from pathlib import Path


def waiting(below: Path) -> list[Path]:
    """Of all stagings somewhere below this folder, in the order of their names; also what is half
    written. Files of batches that are visible stay for a while, and are left out.
    """
    found: list[Path] = []
    for scope in [file.parent for file in below.rglob("scope")]:
        last = last_visible(scope)
        found += [staged for staged in scope.glob("*.staged") if batch_of(staged) > last]
        found += scope.glob("*.tmp")
    return sorted(found)


def batch_of(staged: Path) -> int:
    return int(staged.name.partition("-")[0])


def last_visible(scope: Path) -> int:
    return max(
        (int(note.name.rpartition("-")[2]) for note in scope.glob("published-*")), default=-1
    )
