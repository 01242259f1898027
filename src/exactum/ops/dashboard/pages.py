"""Draws the page's HTML. Every value is escaped; no script and no style is in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from exactum._version import __version__
from exactum.monitor import words
from exactum.ops.dashboard.batch import TRANSACTIONS_MAX, BatchState
from exactum.ops.dashboard.picture import (
    WORST_FIRST,
    Judged,
    QueryPicture,
    ScriptPicture,
    judged,
)

TEMPLATES = Path(__file__).parent / "templates"
BATCHES_SHOWN = 15
BATCHES_SHOWN_MAX = 1_000
BATCHES_LIVE_MAX = 100
"""A longer list is not drawn again every two seconds."""
EVENTS_SHOWN = 40
FAILURES_SHOWN = 20
PHASES = ("write", "verify", "decide", "commit", "sweep")
"""Those that have a colour of their own; the others share one."""


class Pages:
    """Whole pages, or the part of each that is drawn again while somebody looks (``part``)."""

    def __init__(self, *, has_script: bool) -> None:
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
            segment=lambda text: quote(str(text), safe=""),
            held_by=words.held_by,
        )
        self._jinja.globals.update(
            ago=words.ago,
            count=words.count,
            spark=_spark,
            bars=_bars,
            phase_class=phase_class,
            version=__version__,
            zone=time.strftime("%Z"),
            has_script=has_script,
        )

    def overview(self, pictures: Sequence[QueryPicture], *, part: bool) -> str:
        """All queries, those that need somebody first."""
        queries = [(picture, judged(picture)) for picture in pictures]
        queries.sort(key=lambda query: _rank(query[1]))
        bad = [verdict.word for _, verdict in queries if _rank(verdict) < WORST_FIRST.index("ok")]
        title = f"{len(bad)} of {len(queries)} need a look" if bad else "Queries"
        tones = {tone: [v.word for _, v in queries if v.tone == tone] for tone in WORST_FIRST}
        counts = [(tone, words[0], len(words)) for tone, words in tones.items() if words]
        return self._draw(
            "overview.html", title, "/fragment/overview", part, queries=queries, counts=counts
        )

    def query(self, picture: QueryPicture, shown: int, *, part: bool) -> str:
        """One query. ``shown`` is how many micro-batches are listed."""
        verdict = judged(picture)
        title = f"{verdict.word} · {picture.name}"
        batches = list(reversed(picture.batches))[: min(max(shown, 1), BATCHES_SHOWN_MAX)]
        failures = list(reversed(picture.failures))[:FAILURES_SHOWN]
        events = list(reversed(picture.events))[:EVENTS_SHOWN]
        address = f"/fragment/query/{quote(picture.key, safe='')}?batches={shown}"
        is_live = shown <= BATCHES_LIVE_MAX
        return self._draw(
            "query.html",
            title,
            address if is_live else "",
            part,
            picture=picture,
            stats=picture.stats,
            verdict=verdict,
            batches=batches,
            more_batches=len(picture.batches) > len(batches),
            failures=failures,
            events=events,
            put_aside=list(reversed(picture.put_aside))[:FAILURES_SHOWN],
            longest_ms=max((line.whole_ms for line in batches), default=0.0),
            phases=list(dict.fromkeys(name for line in batches for name in line.phase_ms)),
        )

    def batch(self, picture: QueryPicture, batch: BatchState, *, part: bool) -> str:
        """One micro-batch of a query."""
        return self._draw(
            "batch.html",
            f"Micro-batch {batch.batch_id} · {picture.name}",
            f"/fragment/query/{quote(picture.key, safe='')}/batch/{batch.batch_id}",
            part,
            picture=picture,
            batch=batch,
            transactions_max=TRANSACTIONS_MAX,
        )

    def script(self, script: ScriptPicture, *, part: bool) -> str:
        """What ``exactum run`` does with its script."""
        return self._draw(
            "script.html", f"{script.state} · script", "/fragment/script", part, script=script
        )

    def missing(self, what: str) -> str:
        """There is nothing at this address."""
        return self._draw("missing.html", "Not found", "", part=False, what=what)

    def _draw(self, template: str, title: str, address: str, part: bool, **values: Any) -> str:
        whole = "part.html" if part else "page.html"
        return self._jinja.get_template(whole).render(
            body=template, title=title, address=address, now=words.now_ms(), **values
        )


def phase_class(name: str) -> str:
    """The class of style of a phase."""
    return f"p-{name}" if name in PHASES else "p-other"


def _rank(verdict: Judged) -> int:
    return WORST_FIRST.index(verdict.tone) if verdict.tone in WORST_FIRST else 0


def _spark(values: Sequence[float], width: int = 120, height: int = 24) -> str:
    """The points of a small line, for SVG."""
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
