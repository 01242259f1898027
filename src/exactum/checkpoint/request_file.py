"""A request to stop, left as a file for the run that it names; that run answers with its end.

    <checkpoint>/exactum/requests/<incarnation>.json          for how many ms it stands, and an id
    <checkpoint>/exactum/requests/<incarnation>.stops.json    the run's word that it stops now

It never stops a later run, and it expires, so what a dead command left stops nobody by surprise. It
is taken back by removing it, which a run that has given its word does not see any more. What became
of it is in the run's own file (``run_file``).
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from exactum.checkpoint.run_file import poll_s, request_name, runs
from exactum.errors import CheckpointRefused, Unavailable
from exactum.storage.storage import Storage

STOPPING_S = 30.0
"""How much longer a run is waited for that has said that it stops."""


def _word_name(incarnation: str) -> str:
    return request_name(f"{incarnation}.stops")


def ask(files: Storage, incarnation: str, valid_s: float) -> None:
    """Leave a request for this run."""
    name = request_name(incarnation)
    files.open(name.rpartition("/")[0])  # which may take its time on a busy disk
    files.delete([_word_name(incarnation)])  # of an earlier one
    text = f"{valid_s * 1000:.0f} {secrets.token_hex(8)}"
    files.put(name, text.encode(), durable=False)


class Requests:
    """Those to one run, as it sees them. Its methods raise as the storage does."""

    def __init__(self, files: Storage, incarnation: str) -> None:
        self._files = files
        self._incarnation = incarnation
        self._seen, self._since_s = b"", 0.0

    def is_valid(self) -> bool:
        """Whether there is one that was neither taken back nor is too old: the run counts from when
        it first sees it, for the clock of who asks may be off.
        """
        text, now_s = self._files.read(request_name(self._incarnation)) or b"", time.monotonic()
        if text != self._seen:
            self._seen, self._since_s = text, now_s
        valid_ms = text.partition(b" ")[0]
        return valid_ms.isdigit() and now_s - self._since_s < int(valid_ms) / 1000

    def stops(self) -> bool:
        """Give the word that the run stops now. False: it does not, as the request was taken back
        before that. (Who takes one back looks for the word afterwards.)
        """
        self._files.put(_word_name(self._incarnation), b"", durable=False)
        return self.is_valid()


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
        Unavailable: it did not stop in time. The request is taken back: a run that had not begun to
            stop goes on.
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
    requests = [request_name(incarnation) for incarnation in asked]
    try:
        for incarnation in asked:
            ask(files, incarnation, timeout_s)
        while left := [run for run, lives in runs(files) if lives and run.incarnation in asked]:
            late_s = time.monotonic() - deadline_s
            if late_s >= 0:
                files.delete(requests)  # who has not given its word by now goes on
                deaf = [run for run in left if files.read(_word_name(run.incarnation)) is None]
                if deaf or late_s >= STOPPING_S:
                    goes_on = "so it goes on"
                    if len(deaf) < len(asked):
                        goes_on = "but a run of it has stopped, or is about to ('exactum status')"
                    raise Unavailable(
                        f"The query of checkpoint {files.where}, {(deaf or left)[0]}, did not stop "
                        f"within {timeout_s:g} s: its epoch takes longer, or its process is frozen "
                        f"or very busy. The request is taken back, {goes_on}. Wait for longer with "
                        "--timeout, or leave --stop out. No savepoint was made."
                    )
            time.sleep(poll_s(files))
        for run, _ in runs(files):
            # Without a word it ended by itself, or died.
            if run.incarnation in asked and run.completed is not None:
                last = run.completed
    finally:
        files.delete([*requests, *map(_word_name, asked)])
    return Stopped(last, tuple(run.incarnation for run, _ in on_file))
