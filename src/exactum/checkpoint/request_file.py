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
from pathlib import Path

from exactum.checkpoint.layout import REQUESTS
from exactum.durable import make_folder, names_in, write_whole

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

    def stands(self, checkpoint: Path) -> bool:
        """Whether it was neither taken back nor is too old."""
        return time.time() * 1000 < self.expires_ms and _path(checkpoint, self.id).exists()

    def answer(self, checkpoint: Path, answer: Answer) -> None:
        """Say how far it has come. Idempotent; later answers replace earlier ones."""
        write_whole(checkpoint / REQUESTS / f"{self.id}{ANSWER}", json.dumps(asdict(answer)))
        if not _path(checkpoint, self.id).exists():
            self.take_back(checkpoint)  # it was, meanwhile: nobody else would remove the answer

    def answered(self, checkpoint: Path) -> Answer | None:
        """What the run has said so far; None: it has not seen the request."""
        try:
            return Answer(**json.loads((checkpoint / REQUESTS / f"{self.id}{ANSWER}").read_text()))
        except FileNotFoundError:
            return None

    def take_back(self, checkpoint: Path) -> None:
        """Remove request and answer. Idempotent."""
        _path(checkpoint, self.id).unlink(missing_ok=True)
        (checkpoint / REQUESTS / f"{self.id}{ANSWER}").unlink(missing_ok=True)


def ask(checkpoint: Path, incarnation: str, stands_s: float) -> Request:
    """Leave a request for this run and return it."""
    make_folder(checkpoint / REQUESTS)  # which may take its time on a busy disk
    request = Request(secrets.token_hex(8), incarnation, int((time.time() + stands_s) * 1000))
    write_whole(_path(checkpoint, request.id), json.dumps(asdict(request)))
    return request


def find(
    checkpoint: Path, incarnation: str, tell: Callable[[str], None] = lambda _: None
) -> Request | None:
    """A request that stands for this run, or None. Costs one listing of a small folder, or of
    none. What cannot be read or removed stops nobody: ``tell`` is given a sentence for each.
    """
    folder = checkpoint / REQUESTS
    try:
        names = names_in(folder)
    except OSError as error:
        tell(f"{folder} cannot be read ({error}): a request to stop would not be seen")
        return None
    for name in names:
        if name.startswith(".") or name.endswith(ANSWER):
            continue
        try:
            request = Request(**json.loads((folder / name).read_text()))
            is_old = time.time() * 1000 >= request.expires_ms
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError) as error:  # another user's, or half of one
            tell(f"{folder / name} is no request to stop that can be read ({error}): remove it")
            continue
        if name != f"{request.id}.json":  # its answer would be written elsewhere
            continue
        if is_old:
            try:
                request.take_back(checkpoint)
            except OSError as error:
                tell(f"{folder / name} is too old, and cannot be removed ({error})")
        elif request.incarnation == incarnation:
            return request
    return None


def _path(checkpoint: Path, request_id: str) -> Path:
    return checkpoint / REQUESTS / f"{request_id}.json"
