"""A request to stop, left as a file for the run that it names; that run answers with its end.

    <checkpoint>/exactum/requests/<incarnation>.json    until when it stands, in ms since 1970

It never stops a later run, and it expires, so what a dead command left stops nobody by surprise. It
is taken back by removing it. What became of it is in the run's own file (``run_file``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from exactum.checkpoint.run_file import poll_s, request_name, runs
from exactum.errors import CheckpointRefused, Unavailable
from exactum.storage.storage import Storage


def ask(files: Storage, incarnation: str, stands_s: float) -> None:
    """Leave a request for this run."""
    name = request_name(incarnation)
    files.open(name.rpartition("/")[0])  # which may take its time on a busy disk
    files.put(name, str(int((time.time() + stands_s) * 1000)).encode(), durable=False)


def is_asked(files: Storage, incarnation: str) -> bool:
    """Whether a request stands for this run: it was neither taken back nor is it too old, by this
    machine's clock.

    Raises:
        Unavailable, SettingRefused: it cannot be read.
    """
    text = files.read(request_name(incarnation)) or b""
    return text.isdigit() and time.time() * 1000 < int(text)


# ---- who asks, and waits -------------------------------------------------------------------------


@dataclass(frozen=True)
class Stopped:
    """How the query came to rest: the last epoch that the run said it had completed; None where it
    said nothing. ``incarnations`` are the runs that were on file when it was asked.
    """

    batch_id: int | None
    incarnations: tuple[str, ...] = ()


def stop(files: Storage, timeout_s: float) -> Stopped:
    """Stop the query of this checkpoint after the epoch at hand. Returns when nothing of it runs
    any more.

    Raises:
        CheckpointRefused: nothing runs here.
        Unavailable: it did not stop in time. The request is taken back: it goes on.
    """
    on_file = runs(files)
    asked = [run.incarnation for run, lives in on_file if lives]
    if not asked:
        raise CheckpointRefused(
            "QUERY_STOPPED",
            f"Nothing runs on the checkpoint {files.where} (a query is seen from its first batch "
            "on), so there is nothing to stop. Leave --stop out. Nothing was written.",
        )
    deadline_s = time.monotonic() + timeout_s
    last: int | None = None
    try:
        for incarnation in asked:
            ask(files, incarnation, timeout_s)
        while left := [run for run, lives in runs(files) if lives and run.incarnation in asked]:
            if time.monotonic() >= deadline_s:
                raise Unavailable(
                    f"The query of checkpoint {files.where}, {left[0]}, did not stop within "
                    f"{timeout_s:.0f} s: its epoch takes longer, or its process is frozen or very "
                    "busy. The request is taken back, so it goes on. Wait for longer with "
                    "--timeout, or leave --stop out. No savepoint was made."
                )
            time.sleep(poll_s(files))
        for run, _ in runs(files):
            # Without a word it ended by itself, or died.
            if run.incarnation in asked and run.completed is not None:
                last = run.completed
    finally:
        files.delete([request_name(incarnation) for incarnation in asked])
    return Stopped(last, tuple(run.incarnation for run, _ in on_file))
