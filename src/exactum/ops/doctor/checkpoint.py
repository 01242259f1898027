"""The checkpoint's folder: what its file system can do, and what a former query has left in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.retirement import refuse_retired
from exactum.checkpoint.run_file import living
from exactum.ops.doctor.folder_probe import FOR_CHECKPOINT, folder_findings
from exactum.ops.problem import Problem, error, ok, warning

AREA = "checkpoint"


def findings(checkpoint: str, decision_log: str | None) -> Iterator[Problem]:
    """``checkpoint``: as the query is given it as checkpointLocation."""
    folder = local_folder(checkpoint)
    if folder is None:
        yield from _elsewhere(checkpoint, decision_log)
        return
    yield from folder_findings(AREA, folder.absolute(), FOR_CHECKPOINT)
    yield from _left(folder, decision_log)


def _elsewhere(checkpoint: str, decision_log: str | None) -> Iterator[Problem]:
    if decision_log is None:
        yield error(
            AREA,
            f"{checkpoint} lies on no local or shared file system, and no decision log is named.",
            "By default the decision log is kept in the checkpoint's folder, which has to create "
            "files only if absent.",
            "Pass decision_log= to the query, and --decision-log here.",
        )
        return
    yield ok(
        AREA,
        f"{checkpoint} is read and written by Spark's own file systems alone: it was not tried.",
    )


def _left(folder: Path, decision_log: str | None) -> Iterator[Problem]:
    """A query that ran on it before."""
    if not (folder / "metadata").exists():
        return
    place = QueryPlace.of(folder, decision_log)
    refuse_retired(folder)
    for run in living(folder):
        yield warning(
            AREA,
            f"A query runs on it: {run}.",
            "Another start takes the query over from it, and that one stops as fenced.",
            "Stop it first, unless that is what you want.",
        )
    finished = place.finished()
    yield ok(
        AREA,
        f"It is the checkpoint of query {place.query_id}, "
        + ("without a finished micro-batch." if finished is None else f"done up to {finished}."),
    )
    place.open_log().close()  # refuses where its decisions are kept elsewhere
