"""The rules of a move: a query goes on in another place under its own identity.

Targets know which epochs of a query they have, so an epoch of the same name must never be written
with other rows. Only the very last epoch may be moved, and the original is retired.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path

from exactum.checkpoint import retirement
from exactum.checkpoint.layout import REPLAYS
from exactum.checkpoint.record_folder import listed
from exactum.checkpoint.run_file import RecordedRun, outliving, runs
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.manifest import Manifest
from exactum.errors import CheckpointRefused

ENDING_S = 4.0
"""How long a query that has just ended may still be seen."""


def original_at_rest(manifest: Manifest, folder: Path) -> Path:
    """The original checkpoint, which nobody uses and which has no epoch after the savepoint's.

    Raises:
        CheckpointRefused: it runs, has gone on since, is retired already, or cannot be found.
    """
    original = Path(manifest.checkpoint)
    if not is_of(original, manifest):
        raise CheckpointRefused(
            f"The original checkpoint {original} (on {manifest.host}) of query {manifest.query_id} "
            "is not to be found, so it cannot be retired: two queries of one identity would spoil "
            "each other's epochs. Run this where it can be seen; or, if it is lost for good and "
            "no driver of it lives, say --original-is-gone; or start a fork (--as fork). Nothing "
            "was changed."
        )
    alive = still_living(original)
    if alive:
        raise CheckpointRefused(
            f"The original query runs: {alive[0]}, checkpoint {original}. Stop it with a new "
            "savepoint (exactum savepoint create --stop), or start a fork (--as fork). Nothing "
            "was changed."
        )
    _refuse_other_place(original, manifest, folder)
    refuse_rollback(original, manifest)
    _refuse_doubt(original, manifest)
    if retirement.is_moved(original) and not is_of(folder, manifest):
        raise CheckpointRefused(
            f"The query was moved to {folder} before, from this savepoint, and may have gone on "
            "there; now that checkpoint is gone. Under the same identity nobody goes back behind "
            "what it has written since. Put the checkpoint back, or start a fork (--as fork); or, "
            "if it has never run there, say --original-is-gone. Nothing was changed."
        )
    return original


def is_of(folder: Path, manifest: Manifest) -> bool:
    """Whether this is a checkpoint of the query that the savepoint is of."""
    return (folder / "metadata").is_file() and cut.query_id_of(folder) == manifest.query_id


def note_moved(manifest: Manifest, folder: Path) -> None:
    """For the next call, in the original checkpoint, where that can be seen. What cannot be written
    there now is no reason to keep the query from its new place: the next call tries again.
    """
    original = Path(manifest.checkpoint)
    if original != folder and is_of(original, manifest):
        with contextlib.suppress(OSError):
            retirement.note_moved(original)


def _refuse_other_place(original: Path, manifest: Manifest, folder: Path) -> None:
    """
    Raises:
        CheckpointRefused: the original has made room for another checkpoint than ``folder``.
    """
    retired = retirement.retired(original)
    if retired is not None and (retired.get("savepoint"), retired.get("to")) != (
        manifest.id,
        str(folder),
    ):
        raise CheckpointRefused(
            f"The original checkpoint {original} is retired: {retired.get('to')} took its place. "
            "Start the query from there, or start a fork (--as fork); or, if it has never run "
            "there, remove that one and say --original-is-gone. Nothing was changed."
        )


def retire(original: Path, manifest: Manifest, folder: Path) -> None:
    """See to it that nobody goes on under this identity in the original place. Idempotent.

    Raises:
        CheckpointRefused: another move was faster; or as ``refuse_late``, and the original is not
            retired.
    """
    retirement.retire(original, {"to": str(folder), "savepoint": manifest.id})
    _refuse_other_place(original, manifest, folder)  # of two at once, the first one's name stands
    refuse_late(original, manifest)


def refuse_late(original: Path, manifest: Manifest) -> None:
    """Of an original that was just retired, so that nobody begins a run there any more: what was
    seen before the files were copied, once more. That may have taken minutes.

    Raises:
        CheckpointRefused: it runs, has gone on since, or may have. It is not retired any more.
    """
    try:
        _refuse_late(original, manifest)
    except CheckpointRefused:
        retirement.reinstate(original)
        raise


def _refuse_late(original: Path, manifest: Manifest) -> None:
    alive = still_living(original)
    if alive:
        raise CheckpointRefused(
            f"The original query was started while the savepoint was restored: {alive[0]}, "
            f"checkpoint {original}. Stop it with a new savepoint (exactum savepoint create "
            "--stop), and restore that. Nothing was changed."
        )
    refuse_rollback(original, manifest)
    _refuse_doubt(original, manifest)


def refuse_rollback(original: Path, manifest: Manifest) -> None:
    """
    Raises:
        CheckpointRefused: the original has completed or decided an epoch after the savepoint's, or
            sent dead letters again; or its record of these could not be read.
    """
    last = max(cut.last_complete(original), cut.last_decided(original))
    if last > manifest.batch_id:
        raise CheckpointRefused(
            f"The query has gone on to epoch {last} since this savepoint of epoch "
            f"{manifest.batch_id} was made. Its targets have those epochs, so under the same "
            "identity epochs of the same names would be refused there, or lost. To go back, start "
            "a fork (--as fork); to move the query, make a new savepoint of its last epoch. "
            "Nothing was changed."
        )
    names = listed(original / REPLAYS, "what dead letters were replayed")
    there = cut.replays_of(f"{REPLAYS}/{name}" for name in names)
    if there - cut.replays_of(file.path for file in manifest.files):
        raise CheckpointRefused(
            "Dead letters of the query were replayed since this savepoint was made. It does not "
            "know which, and the next replay would send them again: make a new savepoint, or start "
            "a fork (--as fork). Nothing was changed."
        )


def _refuse_doubt(original: Path, manifest: Manifest) -> None:
    """
    Raises:
        CheckpointRefused: the original has begun an epoch after the savepoint's, and its decisions
            lie elsewhere. If it is decided the moved query would finish it, plan another one of its
            number, and be refused for ever.
    """
    planned = cut.last_planned(original)
    if planned <= manifest.batch_id or cut.has_decisions(original):
        return
    if planned == manifest.undecided and not _ran_since(original, manifest):
        return
    raise CheckpointRefused(
        f"The original query has begun epoch {planned} since this savepoint of epoch "
        f"{manifest.batch_id}, its decision log lies elsewhere, and nobody can tell from here "
        "whether that epoch is decided. Start the query once more where it is, so that it finishes "
        "the epoch, and stop it with a new savepoint (exactum savepoint create --stop); or start "
        "a fork (--as fork). Nothing was changed."
    )


def _ran_since(original: Path, manifest: Manifest) -> bool:
    """Whether a run was begun after the query had stopped for the savepoint, perhaps while files
    were copied. Of an older exactum's only one that came after the copy is known.
    """
    ran = [run for run, _ in runs(original)]
    if manifest.incarnations is not None:
        return any(run.incarnation not in manifest.incarnations for run in ran)
    made_ms = datetime.fromisoformat(manifest.created_at).timestamp() * 1000
    return any(run.started_ms >= made_ms for run in ran)


def still_living(checkpoint: Path) -> list[RecordedRun]:
    """Runs of the checkpoint's query that have not ended, the first one first."""
    return outliving(checkpoint, ENDING_S)
