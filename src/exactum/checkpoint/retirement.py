"""A checkpoint whose place another one takes: nobody may start from it any more.

    <checkpoint>/exactum/retired.json                      for people, and for a start
    <checkpoint>/exactum/decisions/floor-999...            for a driver that was only asleep
    <checkpoint>/exactum/replays/floor-999...              for a replay of dead letters

The floors are the decision log's own floor above every batch: whoever decides anything under it is
fenced, at whatever step it stood when the checkpoint was retired (the proof is in
``files.slot_log``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from exactum.checkpoint.layout import DECISIONS, REPLAYS, RETIRED
from exactum.durable import create_whole, make_folder, remove, sync_folder
from exactum.errors import CheckpointRefused
from exactum.files.slot_log import HIGHEST_FLOOR


@dataclass(frozen=True)
class Retirement:
    """``to`` is the checkpoint that takes the place, made of the savepoint with this id.
    ``built`` is what becomes it by a rename, the last step.
    """

    to: str
    savepoint: str
    built: str

    @property
    def is_unfinished(self) -> bool:
        """Whether the rename was not reached. A command that was killed leaves it so."""
        return Path(self.built).is_dir()


def retire(checkpoint: Path, retirement: Retirement) -> Retirement:
    """Let nobody start from this checkpoint and nobody decide under it. Durable when it returns;
    idempotent. Returns the retirement that stands: of two at once the first one.
    """
    _create(checkpoint / RETIRED, (json.dumps(asdict(retirement), indent=2) + "\n").encode())
    if (checkpoint / DECISIONS).is_dir():
        _create(checkpoint / DECISIONS / HIGHEST_FLOOR, b"")
    _create(checkpoint / REPLAYS / HIGHEST_FLOOR, b"")
    return retired(checkpoint) or retirement


def reinstate(checkpoint: Path, retirement: Retirement) -> None:
    """Undo this retirement, if it is the one that stands. Idempotent."""
    if retired(checkpoint) != retirement:
        return
    for path in (REPLAYS / HIGHEST_FLOOR, DECISIONS / HIGHEST_FLOOR, RETIRED):
        if (checkpoint / path).exists():
            remove(checkpoint / path)
            sync_folder((checkpoint / path).parent)


def retired(checkpoint: Path) -> Retirement | None:
    """By what this checkpoint is retired; None: by nothing."""
    try:
        return Retirement(**json.loads((checkpoint / RETIRED).read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise CheckpointRefused(
            "CHECKPOINT_RETIRED",
            f"{checkpoint / RETIRED} cannot be read ({error}): another checkpoint took this one's "
            "place, and nobody can tell which. Nothing was changed.",
        ) from error


def refuse_retired(checkpoint: Path) -> None:
    """
    Raises:
        CheckpointRefused: the checkpoint is retired.
    """
    found = retired(checkpoint)
    if found is None:
        return
    if found.is_unfinished:
        raise CheckpointRefused(
            "RESTORE_UNFINISHED",
            f"The checkpoint {checkpoint} makes room for {found.to}, and the command that does it "
            "was killed. Repeat that 'exactum savepoint restore', then go on from there. Nothing "
            "was written.",
        )
    raise CheckpointRefused(
        "CHECKPOINT_RETIRED",
        f"The checkpoint {checkpoint} is retired: {found.to} took its place, from savepoint "
        f"{found.savepoint}. Go on from there; if that is lost for good, start a fork of a "
        "savepoint. Nothing was written.",
    )


def _create(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    create_whole(path, content)
    sync_folder(path.parent)
