"""What is looked at, and how: one area after the other, each in a thread with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from exactum.problem import Problem, of_failure, ok, unknown
from exactum.protocol.inspection import Provable
from exactum.protocol.sink import Sink

TIMEOUT_S = 60.0
"""How long one area may take: every request in it is bounded by less."""
POLL_S = 0.1
STOP_TIMEOUT_S = 15.0
"""How long an area may take to clean up after Ctrl-C."""


@dataclass(frozen=True)
class Area:
    """``check`` may raise: what it found before counts."""

    name: str
    check: Callable[[], Iterable[Problem]]
    timeout_s: float = TIMEOUT_S


def proof_of(
    name: str, sink: Sink, longest_outage_s: float | None
) -> Callable[[], Iterable[Problem]]:
    """What is tried of a sink. ``longest_outage_s``: None where nobody said."""
    if isinstance(sink, Provable):
        return partial(sink.prove, longest_outage_s)
    text = (
        f"{type(sink).__name__} was not tried: only its own code knows its target. "
        "exactum.testing.TwoPhaseCommitContract crashes a TwoPhaseCommitSink at every call."
    )
    return lambda: [ok(name, text)]


def examine(areas: Sequence[Area], tick: Callable[[str], None] = print) -> Iterator[Problem]:
    """What is found, each finding once. ``tick`` is called a few times a second with the area.

    An area that does not end in its time is given up (a network file system that hangs holds its
    caller for ever). Its thread is left, and what it may have made is named.
    """
    seen: set[Problem] = set()
    for area in areas:
        for problem in _examined(area, tick):
            if problem not in seen:
                seen.add(problem)
                yield problem


def _examined(area: Area, tick: Callable[[str], None]) -> Iterator[Problem]:
    found: list[Problem] = []
    ended, stopping = threading.Event(), threading.Event()

    def run() -> None:
        try:
            problems = area.check()
            for problem in problems:
                found.append(problem)
                if stopping.is_set():
                    break
            if isinstance(problems, Generator):
                problems.close()  # what it has made is removed here, not when it is collected
        except Exception as failure:  # noqa: BLE001  (a finding: the others go on)
            found.append(of_failure(area.name, failure))
        finally:
            ended.set()

    end_s = time.monotonic() + area.timeout_s
    try:
        threading.Thread(target=run, name=f"exactum-doctor-{area.name}", daemon=True).start()
        while not ended.wait(POLL_S) and time.monotonic() < end_s:
            tick(area.name)
    except BaseException:  # Ctrl-C: what was made is removed first
        stopping.set()
        ended.wait(STOP_TIMEOUT_S)
        raise
    stopping.set()
    yield from list(found)
    if not ended.is_set():
        yield unknown(
            area.name,
            f"No answer within {area.timeout_s:.0f} s; it is not waited for.",
            "What does not answer here makes a query wait as well. What was made there for the "
            "while, an empty folder or a small file or object, may be left.",
            "See whether the server, the network or the mount hangs; then remove what has "
            "exactum-doctor in its name.",
        )
