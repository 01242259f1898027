"""Runs the checks: the areas beside one another, each in a thread with a bound, told in their
order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from exactum.ops.problem import Problem, of_failure, ok, unknown, warning

Look = Callable[[], Iterable[Problem]]
TIMEOUT_S = 60.0
"""How long one area may take: every request in it is bounded by less."""
POLL_S = 0.1
STOP_TIMEOUT_S = 15.0
"""How long the areas may take to clean up after Ctrl-C, or once their time is over."""


@dataclass(frozen=True)
class Examined:
    """One area to look at. ``look`` may raise: what it found before counts.

    ``makes``: it makes files or objects for the while. The end waits for their removal.
    """

    area: str
    look: Look
    timeout_s: float = TIMEOUT_S
    makes: bool = False


def examine(
    areas: Sequence[Examined], tick: Callable[[Sequence[str]], None] = lambda waiting: None
) -> Generator[Problem, None, None]:
    """What is found, area by area in their order, as soon as the areas before are done.

    ``tick`` is called a few times a second with the areas that are still looked at. An area that
    does not end in its time is given up (a network file system that hangs holds its caller for
    ever); its thread is left, and what it may have made is told.
    """
    began_s = time.monotonic()
    stopping = threading.Event()
    looks: list[_Look] = []
    try:
        for area in areas:
            looks.append(_Look(area, stopping))
            looks[-1].start()
        for look in looks:
            deadline_s = began_s + look.area.timeout_s
            while not look.done.wait(POLL_S) and time.monotonic() < deadline_s:
                tick([other.area.area for other in looks if not other.done.is_set()])
            yield from look.outcome()
    finally:  # at the end, and at Ctrl-C: what was made is removed first
        stopping.set()
        end_s = time.monotonic() + STOP_TIMEOUT_S
        makers = [look for look in looks if look.area.makes and look.started]
        for look in makers:
            look.done.wait(max(0.0, end_s - time.monotonic()))
    yield from (_left_by(look.area) for look in makers if not look.done.is_set())


def _left_by(area: Examined) -> Problem:
    return unknown(
        area.area,
        "It has not answered since, so what was made there for the while may be left.",
        "It is an empty folder or a small file or object, and no query looks at it.",
        "Remove what has exactum-doctor in its name.",
    )


class _Look:
    def __init__(self, area: Examined, stopping: threading.Event) -> None:
        self.area = area
        self.started = False
        self.done = threading.Event()
        self._stopping = stopping
        self._found: list[Problem] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        self.started = True
        name = f"exactum-doctor-{self.area.area}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def outcome(self) -> list[Problem]:
        with self._lock:
            found = list(self._found)
        if not self.done.is_set():
            found.append(
                unknown(
                    self.area.area,
                    f"No answer within {self.area.timeout_s:.0f} s; it is not waited for.",
                    "What did not answer here makes a query wait as well.",
                    "See whether the server, the network or the mount hangs.",
                )
            )
        return found

    def _run(self) -> None:
        try:
            found = iter(self.area.look())
            for finding in found:
                self._add(finding)
                if self._stopping.is_set():
                    break
            if isinstance(found, Generator):
                found.close()  # what it has made is removed here, not when it is collected
        except Exception as failure:  # noqa: BLE001  (told as a finding: the others go on)
            self._add(of_failure(self.area.area, failure))
        finally:
            self.done.set()

    def _add(self, finding: Problem) -> None:
        with self._lock:
            self._found.append(finding)


# ---- clocks ----------------------------------------------------------------------------------

SKEW_MAX_S = 2.0
"""How far two clocks may differ before it is said."""


def skew_findings(area: str, whose: str, skew_s: float, uncertain_s: float) -> Iterator[Problem]:
    """``skew_s``: how far the other clock is ahead of ours, give or take ``uncertain_s``."""
    if abs(skew_s) <= SKEW_MAX_S + uncertain_s:
        yield ok(area, f"The clock of {whose} differs by {abs(skew_s):.1f} s or less.")
        return
    way = "ahead of" if skew_s > 0 else "behind"
    yield warning(
        area,
        f"The clock of {whose} is {abs(skew_s):.0f} s {way} this machine's.",
        "No guarantee rests on clocks. But ages, timeouts, lag in seconds and start positions by "
        "time are wrong by as much.",
        "Let both machines follow one time server (chronyd, systemd-timesyncd).",
    )
