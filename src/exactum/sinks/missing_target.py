"""What a start does where the table of a staged sink is not there, and it would make one."""

from __future__ import annotations

from collections.abc import Callable

from exactum.errors import CheckpointRefused
from exactum.protocol.sink import QueryRun
from exactum.sinks.staged import StagedPart, staged_for


def refuse_anew(
    where: str,
    run: QueryRun,
    participant: str,
    at: str | None,
    is_of: Callable[[StagedPart], bool] = lambda part: True,
) -> None:
    """No start makes a target anew that is gone and had batches of the query: readers would see an
    empty one, and not that theirs is gone. ``is_of``: whether a part was staged for it.

    Raises:
        CheckpointRefused: it is so.
        ExactumError: as ``QueryRun.committed``.
    """
    own = [p for p in run.committed() if p.participant == participant and p.rows]
    parts = [part for part in staged_for(own, at) if is_of(part)]
    if parts:
        raise CheckpointRefused(
            "ENDS_DIFFER",
            f"{where}: there is no table, and the decision log has batch "
            f"{max(part.name.batch_id for part in parts)} as committed there. It was moved, "
            "dropped, or is not mounted; or this is another catalog or schema. Nothing was "
            "written.\nBring it back. If it is to begin anew, create it yourself and start again.",
        )
