"""Makes a savepoint: cut, copy, check, name.

[stop the query] -> N = last complete epoch -> copy what belongs to it -> manifest -> one rename
                          ^-- something of N disappeared meanwhile: a newer N
"""

from __future__ import annotations

import secrets
import shutil
import socket
import time
from datetime import datetime, timezone
from pathlib import Path

from exactum._version import __version__
from exactum.checkpoint.run_file import living, runs
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.copies import copy_files, move_into_place, writing
from exactum.checkpoint.savepoint.manifest import CONTENT, MANIFEST, Manifest, check_whole
from exactum.checkpoint.savepoint.stop import Stopped, stop
from exactum.checkpoint.state_store import Vanished
from exactum.durable import make_folder, sync_folder, write_durably
from exactum.errors import CheckpointRefused, Unavailable

STOP_TIMEOUT_S = 60.0
SETTLE_S = 6.0
SETTLE_POLL_S = 0.1
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
    folder = cut.local_checkpoint(checkpoint)
    to = to.absolute()
    if to.exists():
        raise CheckpointRefused(
            f"{to} exists already. Give a path that does not. Nothing was written."
        )
    if to.is_relative_to(folder):
        raise CheckpointRefused(
            f"{to} lies within the checkpoint {folder}. Keep savepoints elsewhere. Nothing was "
            "written."
        )
    stopped = stop(folder, timeout_s) if stop_query else None
    why = ""
    for _ in range(TRIES_MAX):
        running = not _at_rest(folder)
        batch_id = cut.last_complete(folder)
        if batch_id < 0:
            raise CheckpointRefused(
                f"The query of checkpoint {folder} has not completed an epoch yet, so there is "
                "nothing to save. Run it first. Nothing was written."
            )
        if not running:
            refuse_doubt(folder, batch_id, stopped)
        try:
            with writing(to):
                return _copy(folder, to, batch_id, stopped)
        except Vanished as error:
            why = str(error)
            if not running and cut.last_complete(folder) == batch_id:
                raise CheckpointRefused(
                    f"The checkpoint {folder} is damaged: {why} is missing, and epoch {batch_id} "
                    "needs it. Nothing was written."
                ) from error
    raise Unavailable(
        f"The query of checkpoint {folder} went on faster than its files could be copied, "
        f"{TRIES_MAX} times (at last {why} was gone). Stop it for the savepoint (--stop), or raise "
        "spark.sql.streaming.minBatchesToRetain."
    )


def _at_rest(folder: Path) -> bool:
    """False where a run lives. Gives it a moment to finish what is decided; one that has just ended
    is seen for seconds still.
    """
    deadline_s = time.monotonic() + SETTLE_S
    while living(folder):
        if cut.last_decided(folder) <= cut.last_complete(folder) or time.monotonic() > deadline_s:
            return False
        time.sleep(SETTLE_POLL_S)
    return True


def refuse_doubt(folder: Path, batch_id: int, stopped: Stopped | None) -> None:
    """Refuse an epoch after ``batch_id`` that may be decided and is not complete. For a query that
    does not run.

    Raises:
        CheckpointRefused: there is one, or nobody can tell.
    """
    finish = (
        "Start the query once, so that it finishes it, and stop it again; then make the savepoint."
    )
    decided = cut.last_decided(folder)
    if decided > batch_id:
        raise CheckpointRefused(
            f"Epoch {decided} of the query of checkpoint {folder} is decided, and Spark's commit "
            f"log has only epoch {batch_id}: its driver died in between. {finish} Nothing was "
            "written."
        )
    planned = cut.last_planned(folder)
    if planned > batch_id and not _told(batch_id, stopped) and not cut.has_decisions(folder):
        raise CheckpointRefused(
            f"Epoch {planned} of the query of checkpoint {folder} was begun and is not complete, "
            "and its decision log lies elsewhere, so nobody can tell from here whether it is "
            f"decided. {finish} Nothing was written."
        )


def _undecided(folder: Path, batch_id: int, stopped: Stopped | None) -> int:
    """See ``Manifest.undecided``."""
    planned = cut.last_planned(folder)
    return planned if planned > batch_id and _told(batch_id, stopped) else -1


def _told(batch_id: int, stopped: Stopped | None) -> bool:
    """Whether the query has said that it stopped behind this batch: nothing later was begun."""
    return stopped is not None and stopped.batch_id == batch_id


def _copy(folder: Path, to: Path, batch_id: int, stopped: Stopped | None) -> Manifest:
    undecided = _undecided(folder, batch_id, stopped)
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
            undecided=undecided,
            incarnations=None if stopped is None else stopped.incarnations,
        )
        write_durably(partial / MANIFEST, manifest.to_bytes())
        sync_folder(partial)
        move_into_place(partial, to)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest
