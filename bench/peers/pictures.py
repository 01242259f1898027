"""The results as pictures: python -m bench.peers.pictures RESULTS.jsonl FOLDER

peers-drain.png, peers-tail.png and peers-crash.png. A bar is the median, its whisker min to max;
who was not exact in one of its runs is hatched.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bench.peers import contender, drain, tail
from bench.peers.result import Row, chosen, read

OWN, OTHERS = "#1f6feb", "#9aa4b1"
DPI = 192
"""Twice what a browser takes for a pixel."""


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Those of which there are results."""
    folder.mkdir(parents=True, exist_ok=True)
    done = [row for row in rows if "error" not in row]
    made = []
    for name, figure in (
        ("drain", _drained(done)),
        ("tail", _followed(done)),
        ("crash", _crashed(done)),
    ):
        if figure is not None:
            path = folder / f"peers-{name}.png"
            figure.savefig(path, dpi=DPI)
            plt.close(figure)
            made.append(path)
    return made


def _drained(rows: Sequence[Row]) -> Any:
    kinds = [
        kind for kind in drain.KINDS if chosen(rows, phase="drain", job=kind.job, bytes=kind.bytes)
    ]
    if not kinds:
        return None
    figure, axes = plt.subplots(
        len(kinds),
        2,
        figsize=(11, 1 + 2.4 * len(kinds)),
        layout="constrained",
        squeeze=False,
        sharey="row",
    )
    for (left, right), kind in zip(axes, kinds, strict=True):
        mine = chosen(rows, phase="drain", job=kind.job, bytes=kind.bytes)
        title = f"{kind.job}, {kind.bytes:,} B"
        _bars(
            left,
            mine,
            lambda row: row["rate_per_s"] and row["rate_per_s"] / 1000,
            f"{title}: k records/s",
        )
        _bars(right, mine, lambda row: row["cpu_us_per_record"], f"{title}: CPU s a million")
    return figure


def _followed(rows: Sequence[Row]) -> Any:
    everywhere = [f"{rate:,.0f}" for rate in tail.RATES]  # the others are not of each interval
    mine = [
        row for row in chosen(rows, phase="tail") if row.get("p50_ms") and row["rate"] in everywhere
    ]
    rates = list(dict.fromkeys(row["rate"] for row in mine))
    if not rates:
        return None
    figure, axes = plt.subplots(
        1, len(rates), figsize=(4.5 * len(rates), 5), layout="constrained", squeeze=False
    )
    for panel, rate in zip(axes[0], rates, strict=True):
        for name in [n for n in contender.BY_NAME if chosen(mine, rate=rate, contender=n)]:
            own = chosen(mine, rate=rate, contender=name)
            intervals = sorted({row["interval_ms"] for row in own})
            for percent, line in ((50, "-"), (99, ":")):
                values = [
                    statistics.median(
                        [row[f"p{percent}_ms"] for row in chosen(own, interval_ms=interval)]
                    )
                    for interval in intervals
                ]
                colour = panel.lines[-1].get_color() if percent == 99 else None
                panel.plot(
                    intervals,
                    values,
                    line,
                    marker=".",
                    color=colour,
                    label=name if percent == 50 else None,
                )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(f"{rate} records/s", loc="left", fontsize=10)
        panel.set_xlabel("commit interval, ms")
        panel.grid(visible=True, alpha=0.3)
    axes[0][0].set_ylabel("visible latency, ms: p50, and p99 dotted")
    axes[0][0].legend(fontsize=7)
    return figure


def _crashed(rows: Sequence[Row]) -> Any:
    mine = [
        {**row, "contender": f"{row['contender']}, {row['means']}"}
        for row in chosen(rows, phase="crash")
    ]
    jobs = list(dict.fromkeys(row["job"] for row in mine))
    if not jobs:
        return None
    figure, axes = plt.subplots(
        len(jobs), 1, figsize=(9, 1 + 3 * len(jobs)), layout="constrained", squeeze=False
    )
    for (panel,), job in zip(axes, jobs, strict=True):
        title = f"{job}: seconds from SIGKILL to the first new record"
        _bars(panel, chosen(mine, job=job), lambda row: row["recovery_s"], title)
    return figure


def _bars(panel: Any, rows: Sequence[Row], of: Callable[[Row], float | None], title: str) -> None:
    names = list(dict.fromkeys(row["contender"] for row in rows))
    order = list(contender.BY_NAME)
    names.sort(
        key=lambda name: max(
            (i for i, known in enumerate(order) if name.startswith(known)), default=0
        )
    )
    for place, name in enumerate(names):
        own = chosen(rows, contender=name)
        values = [value for value in map(of, own) if value]
        if not values:
            continue
        middle = statistics.median(values)
        panel.barh(
            place,
            middle,
            xerr=[[middle - min(values)], [max(values) - middle]],
            color=OWN if name.startswith("exactum") else OTHERS,
            hatch=None if all(row["exact"] for row in own) else "///",
            error_kw={"linewidth": 1},
        )
    panel.set_yticks(range(len(names)), names, fontsize=8)
    if not panel.yaxis_inverted():  # the neighbour shares the axis
        panel.invert_yaxis()
    panel.set_title(title, loc="left", fontsize=10)
    panel.grid(visible=True, axis="x", alpha=0.3)


if __name__ == "__main__":
    for path in draw(read(Path(sys.argv[1])), Path(sys.argv[2])):
        print(path)
