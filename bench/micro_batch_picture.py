"""The steps of a micro-batch as a picture: one row a contender, one bar a step, exactum's phases
below the step that they are parts of. In the style of the docs' drawings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "drawing.css"
WIDTH, LEFT, RIGHT = 860, 236, 76
TOP, LINE = 64, 26
OF_STEP, OF_PHASE = "box", "key"
SHORTEST_PX, SHORTEST_MS = 2.0, 0.5


def drawn(
    medians: Mapping[str, Mapping[str, float]], steps: Mapping[str, str], phases: Sequence[str]
) -> str:
    """``medians``: for each contender, ms of each step and of each ``exactum.PHASE``."""
    longest_ms = max(sum(mine.get(step, 0) for step in steps) for mine in medians.values())
    per_ms = (WIDTH - LEFT - RIGHT) / longest_ms
    y, body, said = TOP, list[str](), list[str]()
    for name, mine in medians.items():
        total_ms = sum(mine.get(step, 0) for step in steps)
        body.append(f'<text x="24" y="{y}" class="head">{escape(name)}: {total_ms:.0f} ms</text>')
        said.append(f"{name}: {total_ms:.0f} ms in all.")
        y += 12
        at_ms = 0.0
        for step, what in steps.items():
            ms = mine.get(step, 0.0)
            if ms < SHORTEST_MS:
                continue
            body += _bar(y, what, LEFT + at_ms * per_ms, ms, per_ms, OF_STEP)
            said.append(f"It {what}: {ms:.0f} ms.")
            y += LINE
            if step == "addBatch":
                inner_ms = at_ms
                for phase in phases:
                    part_ms = mine.get(f"exactum.{phase}", 0.0)
                    if part_ms < SHORTEST_MS:
                        continue
                    body += _bar(
                        y, f"· {phase}", LEFT + inner_ms * per_ms, part_ms, per_ms, OF_PHASE
                    )
                    said.append(f"Of that {phase}: {part_ms:.0f} ms.")
                    inner_ms += part_ms
                    y += LINE
            at_ms += ms
        y += 36
    height = y - 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title desc">',
            '<title id="title">Where the time of a small micro-batch goes</title>',
            f'<desc id="desc">{escape(" ".join(said))}</desc>',
            f"<style>\n{STYLE.read_text().strip()}\n</style>",
            f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="6"/>',
            '<text x="24" y="30" class="note quiet">Medians in milliseconds; a step begins where '
            "the one above it ends</text>",
            *body,
            "</svg>\n",
        ]
    )


def _bar(y: int, what: str, x: float, ms: float, per_ms: float, kind: str) -> list[str]:
    width = max(SHORTEST_PX, ms * per_ms)
    return [
        f'<text x="{LEFT - 12}" y="{y + 16}" class="note end">{escape(what)}</text>',
        f'<rect class="{kind}" x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="18" rx="2"/>',
        f'<text x="{x + width + 6:.1f}" y="{y + 16}" class="small quiet">{ms:.0f}</text>',
    ]
