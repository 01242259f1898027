"""Draws the page's HTML from the states of queries. Every value is escaped; no script and no style
is in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from exactum._version import __version__
from exactum.monitor import words
from exactum.monitor.http_server import HttpRequest
from exactum.monitor.job import JobState
from exactum.monitor.verdict import Verdict, judge

TEMPLATES = Path(__file__).parent / "templates"
BATCHES_SHOWN = 15
EVENTS_SHOWN = 40
FAILURES_SHOWN = 20
RATES_SHOWN = 120
"""Of the small picture of a query's rate: ten minutes."""
PHASES = ("write", "verify", "decide", "commit", "sweep")
"""Those that have a colour of their own; the others share one."""
TONES = {
    Verdict.DOWN: "down",
    Verdict.IN_DOUBT: "doubt",
    Verdict.STALLED: "stalled",
    Verdict.SLOW: "slow",
    Verdict.HELD_UPSTREAM: "held",
    Verdict.OK: "ok",
    Verdict.UNKNOWN: "ended",
}
"""Colours."""
BAD = (Verdict.DOWN, Verdict.IN_DOUBT, Verdict.STALLED, Verdict.SLOW, Verdict.HELD_UPSTREAM)


class Pages:
    """Whole pages, or of each the part that is drawn again while somebody looks (``?part=1``)."""

    def __init__(self) -> None:
        self._jinja = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._jinja.filters.update(
            number=words.number,
            duration=words.duration,
            millis=words.millis,
            size=words.size,
            clock=words.clock,
            iso=words.iso,
            words=words.text,
            first_line=words.first_line,
            segment=_segment,
            held_by=words.held_by,
        )
        self._jinja.globals.update(
            ago=words.ago,
            count=words.count,
            spark=_spark,
            bars=_bars,
            phase_class=phase_class,
            tones=TONES,
            version=__version__,
            zone=time.strftime("%Z"),
        )

    def overview(self, jobs: Mapping[str, JobState], request: HttpRequest) -> str:
        """All queries, those that need somebody first."""
        order = list(Verdict)
        found = [(key, job, judge(job)) for key, job in jobs.items()]
        found.sort(key=lambda each: order.index(each[2].verdict))
        verdicts = [own.verdict for _, _, own in found]
        bad = sum(verdict in BAD for verdict in verdicts)
        title = f"{bad} of {len(found)} need a look" if bad else "Queries"
        counts = [(verdict, verdicts.count(verdict)) for verdict in order if verdict in verdicts]
        return self._draw("overview.html", title, request, jobs=found, counts=counts)

    def job(self, key: str, job: JobState, request: HttpRequest) -> str:
        """One query; ``?all=1`` lists every micro-batch that is kept."""
        own, past, shows_all = judge(job), job.past, "all" in request.query
        kept = job.stats.batches
        batches = kept[::-1] if shows_all else kept[: -BATCHES_SHOWN - 1 : -1]
        return self._draw(
            "job.html",
            f"{own.verdict.value} · {job.name}",
            request,
            key=key,
            job=job,
            own=own,
            batches=batches,
            more_batches=len(kept) > len(batches),
            failures=past.failures[: -FAILURES_SHOWN - 1 : -1],
            events=past.events[: -EVENTS_SHOWN - 1 : -1],
            put_aside=past.put_aside[: -FAILURES_SHOWN - 1 : -1],
            longest_ms=max((batch.whole_ms for batch in batches), default=0.0),
            phases=list(dict.fromkeys(name for batch in batches for name in batch.phase_ms)),
        )

    def missing(self, what: str) -> str:
        """There is nothing at this address."""
        return self._draw("missing.html", "Not found", None, what=what)

    def _draw(self, body: str, title: str, request: HttpRequest | None, **values: Any) -> str:
        address = "" if request is None else _part_of(request)
        whole = request is None or "part" not in request.query
        return self._jinja.get_template("page.html").render(
            body=body, title=title, address=address, whole=whole, now=words.now_ms(), **values
        )


def _part_of(request: HttpRequest) -> str:
    """The address of the part of this page that changes."""
    path = "/".join(map(_segment, request.path.split("/")))
    return f"{path}?part=1{'&all=1' if 'all' in request.query else ''}"


def _segment(text: object) -> str:
    return quote(str(text), safe="")


def phase_class(name: str) -> str:
    """The class of style of a phase."""
    return f"p-{name}" if name in PHASES else "p-other"


def _spark(job: JobState, width: int = 120, height: int = 24) -> str:
    """The points of a small line, for SVG."""
    values: Sequence[float] = [value or 0 for value in job.past.plots.get("rows", [])]
    values = values[-RATES_SHOWN:]
    top = max(values, default=0.0)
    if top <= 0 or len(values) < 2:
        return ""
    step = width / (len(values) - 1)
    points = (
        f"{index * step:.1f},{height - 1 - value / top * (height - 2):.1f}"
        for index, value in enumerate(values)
    )
    return " ".join(points)


def _bars(phase_ms: dict[str, float], longest_ms: float) -> list[tuple[str, str, str, str]]:
    """Rectangles of a bar that is 100 wide: name, class, where it begins, how wide it is."""
    found, begin = [], 0.0
    for name, ms in phase_ms.items():
        width = 100 * max(ms, 0.0) / longest_ms if longest_ms > 0 else 0.0
        found.append((name, phase_class(name), f"{begin:.2f}", f"{width:.2f}"))
        begin += width
    return found
