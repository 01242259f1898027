"""Asks the living runs of a checkpoint to stop after their epochs, and waits until they have."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint import request_file
from exactum.checkpoint.request_file import Answer
from exactum.checkpoint.run_file import RecordedRun, living, runs
from exactum.errors import CheckpointRefused, Unavailable

POLL_S = 0.1


@dataclass(frozen=True)
class Stopped:
    """How the query came to rest: the last epoch that the run said it had completed; None where it
    said nothing. ``incarnations`` are the runs that were on file when it was asked.
    """

    batch_id: int | None
    incarnations: tuple[str, ...] = ()


def stop(checkpoint: Path, timeout_s: float) -> Stopped:
    """Stop the query of this checkpoint after the epoch at hand. Returns when nothing of it runs
    any more.

    Raises:
        CheckpointRefused: nothing runs here.
        Unavailable: it did not stop in time. The request is taken back: it goes on.
    """
    on_file = runs(checkpoint)
    alive = [run for run, lives in on_file if lives]
    if not alive:
        raise CheckpointRefused(
            "QUERY_STOPPED",
            f"Nothing runs on the checkpoint {checkpoint} (a query is seen from its first batch "
            "on), so there is nothing to stop. Leave --stop out. Nothing was written.",
        )
    deadline_s = time.monotonic() + timeout_s
    requests = [(run, request_file.ask(checkpoint, run.incarnation, timeout_s)) for run in alive]
    last: int | None = None
    try:
        for run, request in requests:
            while run in living(checkpoint):
                if time.monotonic() >= deadline_s:
                    raise _too_slow(checkpoint, run, request.answered(checkpoint), timeout_s)
                time.sleep(POLL_S)
            # It has let go of its file, and says its last word before that. Without one it ended by
            # itself, or died.
            answer = request.answered(checkpoint)
            if answer is not None and answer.stopped:
                last = answer.batch_id
    finally:
        for _, request in requests:
            request.take_back(checkpoint)
    return Stopped(last, tuple(run.incarnation for run, _ in on_file))


def _too_slow(
    checkpoint: Path, run: RecordedRun, answer: Answer | None, timeout_s: float
) -> Unavailable:
    how = (
        "it has not seen the request: its process is frozen, or very busy"
        if answer is None
        else "it has seen the request, and its epoch is not over yet"
    )
    return Unavailable(
        f"The query of checkpoint {checkpoint}, {run}, did not stop within {timeout_s:.0f} s: "
        f"{how}. The request is taken back, so it goes on. Wait for longer with --timeout, or "
        "leave --stop out. No savepoint was made."
    )
