"""Makes a savepoint: cut, copy, check, name.

[stop the query] -> N = last complete epoch -> copy what belongs to it -> manifest -> one rename
                          ^-- something of N disappeared meanwhile: a newer N
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from datetime import datetime, timezone
from pathlib import Path

from exactum._version import __version__
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import living, runs
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.copies import copy_files, move_into_place, writing
from exactum.checkpoint.savepoint.manifest import CONTENT, MANIFEST, Manifest, check_whole
from exactum.checkpoint.savepoint.stop import Stopped, stop
from exactum.checkpoint.state_store import Vanished
from exactum.durable import make_folder, sync_folder, write_durably
from exactum.errors import CheckpointRefused, Unavailable

STOP_TIMEOUT_S = 60.0
TRIES_MAX = 5
"""How often the query may outrun the copy before we give up."""


def create(
    checkpoint: str, to: Path, *, stop_query: bool = False, timeout_s: float = STOP_TIMEOUT_S
) -> Manifest:
    """A savepoint of the query with this checkpoint, under the path ``to``, which must not exist.

    With ``stop_query`` the query is stopped first, after the epoch at hand, for which it has
    ``timeout_s``.

    Raises:
        CheckpointRefused: there is no complete epoch, one is in doubt, or something is damaged.
        Unavailable: the query did not stop in time, or outran the copy again and again, or ``to``
            cannot be written.
    """
    folder = Path(os.path.abspath(QueryPlace.of(checkpoint).folder))
    to = to.absolute()
    if to.exists():
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{to} exists already. Give a path that does not. Nothing was written.",
        )
    if to.is_relative_to(folder):
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{to} lies within the checkpoint {folder}. Keep savepoints elsewhere. Nothing was "
            "written.",
        )
    stopped = stop(folder, timeout_s) if stop_query else Stopped(None)
    why = ""
    for _ in range(TRIES_MAX):
        running = bool(living(folder))
        batch_id = cut.last_complete(folder)
        if batch_id < 0:
            raise CheckpointRefused(
                "SAVEPOINT_TOO_EARLY",
                f"The query of checkpoint {folder} has not completed an epoch yet, so there is "
                "nothing to save. Run it first. Nothing was written.",
            )
        said_so = stopped.batch_id == batch_id  # that nothing later was begun
        if not running:
            refuse_doubt(folder, batch_id, said_so)
        try:
            with writing(to):
                return _copy(folder, to, batch_id, stopped.incarnations if said_so else None)
        except Vanished as error:
            why = str(error)
            if not running and cut.last_complete(folder) == batch_id:
                raise CheckpointRefused(
                    "SAVEPOINT_DAMAGED",
                    f"The checkpoint {folder} is damaged: {why} is missing, and epoch {batch_id} "
                    "needs it. Nothing was written.",
                ) from error
    raise Unavailable(
        f"The query of checkpoint {folder} went on faster than its files could be copied, "
        f"{TRIES_MAX} times (at last {why} was gone). Stop it for the savepoint (--stop), or raise "
        "spark.sql.streaming.minBatchesToRetain."
    )


def refuse_doubt(folder: Path, batch_id: int, is_as_it_stopped: bool = False) -> None:
    """Of a query that does not run. See ``cut.past``.

    Raises:
        CheckpointRefused: an epoch after ``batch_id``, the last complete one, may be decided.
    """
    past = cut.past(folder, batch_id, is_as_it_stopped)
    if past:
        raise CheckpointRefused(
            "SAVEPOINT_TOO_EARLY",
            f"The query of checkpoint {folder} {past}, and Spark's commit log has only epoch "
            f"{batch_id}: its driver died in between. Start the query once, so that it finishes "
            "it, and stop it again (--stop). Nothing was written.",
        )


def _copy(folder: Path, to: Path, batch_id: int, incarnations: tuple[str, ...] | None) -> Manifest:
    chosen = cut.cut_at(folder, batch_id)
    make_folder(to.parent)
    partial = to.with_name(f".{to.name}.partial-{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        copied = copy_files(folder, partial / CONTENT, chosen.files)
        whole = check_whole(partial, batch_id)
        ran = runs(folder)
        manifest = Manifest(
            id=secrets.token_hex(16),
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            exactum=__version__,
            spark=ran[-1][0].spark if ran else "",
            query_id=whole.query_id,
            batch_id=batch_id,
            checkpoint=str(folder),
            host=socket.gethostname(),
            decision_log="checkpoint" if cut.has_decisions(folder) else "elsewhere",
            sources=whole.sources,
            operators=whole.operators,
            files=copied,
            incarnations=incarnations,
        )
        write_durably(partial / MANIFEST, manifest.to_bytes())
        sync_folder(partial)
        move_into_place(partial, to)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest
