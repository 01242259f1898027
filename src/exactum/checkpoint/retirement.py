"""A checkpoint whose query lives on elsewhere: nobody may start from it any more.

    <checkpoint>/exactum/retired.json                      for people, and for a start
    <checkpoint>/exactum/decisions/floor-999...            for a driver that was only asleep
    <checkpoint>/exactum/replays/floor-999...              for a replay of dead letters
    <checkpoint>/exactum/moved.json                        the other checkpoint was there, whole

The floors are the decision log's own floor above every batch: whoever decides anything under it is
fenced, at whatever step it stood when the checkpoint was retired (the proof is in
``files.slot_log``).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import DECISIONS, MOVED, REPLAYS, RETIRED
from exactum.durable import create_whole, make_folder, sync_folder
from exactum.errors import CheckpointRefused
from exactum.files.slot_log import HIGHEST_FLOOR


def retire(checkpoint: Path, value: Mapping[str, str]) -> None:
    """Let nobody start from this checkpoint and nobody decide under it. Durable when it returns;
    idempotent.

    ``value`` has ``to``, the checkpoint that takes its place, and ``savepoint``, the id of what
    that was made of.
    """
    _create(checkpoint / RETIRED, (json.dumps(dict(value), indent=2) + "\n").encode())
    if (checkpoint / DECISIONS).is_dir():
        _create(checkpoint / DECISIONS / HIGHEST_FLOOR, b"")
    _create(checkpoint / REPLAYS / HIGHEST_FLOOR, b"")


def reinstate(checkpoint: Path) -> None:
    """Undo ``retire``: for a retirement that turned out to be wrong. Idempotent."""
    floors = (checkpoint / place / HIGHEST_FLOOR for place in (REPLAYS, DECISIONS))
    for path in (*floors, checkpoint / RETIRED):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)


def retired(checkpoint: Path) -> Mapping[str, Any] | None:
    """What ``retire`` was told; None where the checkpoint is not retired."""
    try:
        value: Mapping[str, Any] = json.loads((checkpoint / RETIRED).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return value


def note_moved(checkpoint: Path) -> None:
    """The checkpoint that takes this one's place is there: from now on it may go on, so nobody may
    make it anew from the same savepoint. Durable when it returns; idempotent.
    """
    _create(checkpoint / MOVED, b"{}\n")


def is_moved(checkpoint: Path) -> bool:
    """Whether ``note_moved`` was told."""
    return (checkpoint / MOVED).exists()


def refuse_retired(checkpoint: Path) -> None:
    """
    Raises:
        CheckpointRefused: the checkpoint is retired.
    """
    value = retired(checkpoint)
    if value is not None:
        raise CheckpointRefused(
            f"The checkpoint {checkpoint} is retired: {value.get('to', 'another checkpoint')} took "
            f"its place, from savepoint {value.get('savepoint', 'unknown')}. Go on from there; if "
            "that is lost for good, start a fork of a savepoint. Nothing was written."
        )


def _create(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    create_whole(path, content)
    sync_folder(path.parent)
