"""Spark's commit log, the folder ``commits`` of a checkpoint: its notes of finished micro-batches."""

from __future__ import annotations

from pathlib import Path


def forget_last_batch(checkpoint: Path) -> None:
    """Take the last note away, as a crash between the sinks' commit and Spark's note leaves it."""
    notes = [file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    last = max(notes, key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
