"""Spark's commit log, the folder ``commits`` of a checkpoint: its notes of finished micro-batches."""

from __future__ import annotations

from pathlib import Path


def notes(checkpoint: Path) -> list[Path]:
    """In their order."""
    found = [file for file in (checkpoint / "commits").glob("*") if file.name.isdigit()]
    return sorted(found, key=lambda file: int(file.name))


def last_batch(checkpoint: Path) -> int:
    """-1: none."""
    return max((int(note.name) for note in notes(checkpoint)), default=-1)


def forget_last_batch(checkpoint: Path) -> None:
    """Take the last note away, as a crash between the sinks' commit and Spark's note leaves it."""
    last = notes(checkpoint)[-1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
