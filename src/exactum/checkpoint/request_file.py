"""A request to stop, left as a file for the run that it names, and that run's answer.

    <checkpoint>/exactum/requests/<id>.json         who is to stop, until when
    <checkpoint>/exactum/requests/<id>.answer.json  what became of it so far

A request names the run that is to stop, so it never stops a later one, and it expires, so what a
dead command left stops nobody by surprise. It is taken back by removing it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from exactum.checkpoint.layout import REQUESTS
from exactum.checkpoint.run_file import RecordedRun, living, poll_s, runs
from exactum.errors import CheckpointRefused, ExactumError, Unavailable
from exactum.storage.storage import Storage

ANSWER = ".answer.json"


@dataclass(frozen=True)
class Answer:
    """How far a stop has come. ``batch_id`` is the last epoch that this run completed; None: none
    yet.
    """

    stopped: bool
    batch_id: int | None


@dataclass(frozen=True)
class Request:
    """``incarnation`` is to stop, unless it is later than ``expires_ms`` (since 1970, by each
    machine's own clock).
    """

    id: str
    incarnation: str
    expires_ms: int

    @property
    def name(self) -> str:
        """Of its file, below a checkpoint."""
        return f"{REQUESTS}/{self.id}.json"

    @property
    def answer_name(self) -> str:
        """Likewise, of the answer to it."""
        return f"{REQUESTS}/{self.id}{ANSWER}"

    def stands(self, files: Storage) -> bool:
        """Whether it was neither taken back nor is too old."""
        return time.time() * 1000 < self.expires_ms and files.entry(self.name) is not None

    def answer(self, files: Storage, answer: Answer) -> None:
        """Say how far it has come. Idempotent; later answers replace earlier ones."""
        files.put(self.answer_name, json.dumps(asdict(answer)).encode(), durable=False)
        if files.entry(self.name) is None:
            self.take_back(files)  # it was, meanwhile: nobody else would remove the answer

    def answered(self, files: Storage) -> Answer | None:
        """What the run has said so far; None: it has not seen the request."""
        text = files.read(self.answer_name)
        return None if text is None else Answer(**json.loads(text))

    def take_back(self, files: Storage) -> None:
        """Remove request and answer. Idempotent."""
        files.delete([self.name, self.answer_name])


def ask(files: Storage, incarnation: str, stands_s: float) -> Request:
    """Leave a request for this run and return it."""
    files.open(REQUESTS)  # which may take its time on a busy disk
    request = Request(secrets.token_hex(8), incarnation, int((time.time() + stands_s) * 1000))
    files.put(request.name, json.dumps(asdict(request)).encode(), durable=False)
    return request


def find(
    files: Storage, incarnation: str, tell: Callable[[str], None] = lambda _: None
) -> Request | None:
    """A request that stands for this run, or None. Costs one listing of a small folder, or of
    none. What cannot be read or removed stops nobody: ``tell`` is given a sentence for each.
    """
    try:
        names = files.names(REQUESTS)
    except ExactumError as error:
        tell(f"{error} A request to stop would not be seen.")
        return None
    for name in names:
        if name.startswith(".") or name.endswith(ANSWER):
            continue
        where = f"{files.where}/{REQUESTS}/{name}"
        try:
            text = files.read(f"{REQUESTS}/{name}")
            if text is None:
                continue
            request = Request(**json.loads(text))
            is_old = time.time() * 1000 >= request.expires_ms
        except (ExactumError, ValueError, TypeError) as error:  # another user's, or half of one
            tell(f"{where} is no request to stop that can be read ({error}): remove it")
            continue
        if name != f"{request.id}.json":  # its answer would be written elsewhere
            continue
        if is_old:
            try:
                request.take_back(files)
            except ExactumError as error:
                tell(f"{where} is too old, and cannot be removed ({error})")
        elif request.incarnation == incarnation:
            return request
    return None


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
    alive = [run for run, lives in on_file if lives]
    if not alive:
        raise CheckpointRefused(
            "QUERY_STOPPED",
            f"Nothing runs on the checkpoint {files.where} (a query is seen from its first batch "
            "on), so there is nothing to stop. Leave --stop out. Nothing was written.",
        )
    deadline_s = time.monotonic() + timeout_s
    requests = [(run, ask(files, run.incarnation, timeout_s)) for run in alive]
    last: int | None = None
    try:
        for run, request in requests:
            while run in living(files):
                if time.monotonic() >= deadline_s:
                    raise _too_slow(files, run, request.answered(files), timeout_s)
                time.sleep(poll_s(files))
            # It has let go of its file, and says its last word before that. Without one it ended by
            # itself, or died.
            answer = request.answered(files)
            if answer is not None and answer.stopped:
                last = answer.batch_id
    finally:
        for _, request in requests:
            request.take_back(files)
    return Stopped(last, tuple(run.incarnation for run, _ in on_file))


def _too_slow(
    files: Storage, run: RecordedRun, answer: Answer | None, timeout_s: float
) -> Unavailable:
    how = (
        "it has not seen the request: its process is frozen, or very busy"
        if answer is None
        else "it has seen the request, and its epoch is not over yet"
    )
    return Unavailable(
        f"The query of checkpoint {files.where}, {run}, did not stop within {timeout_s:.0f} s: "
        f"{how}. The request is taken back, so it goes on. Wait for longer with --timeout, or "
        "leave --stop out. No savepoint was made."
    )
