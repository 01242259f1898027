"""The results as tables in Markdown: python -m bench.peers.tables RESULTS.jsonl [--into
bench/results/beside-other-systems.md]

Each cell is the median (min to max) over the rounds; a ratio compares within the same round.
Whoever was not exact in one of its runs is struck through.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.peers import contender, crash, drain
from bench.peers.result import Row, chosen, read

NOTHING = "-"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def markdown(rows: Sequence[Row]) -> str:
    machines = chosen(rows, phase="machine")
    parts = [f"{row['text']}.\n\n{row['settings']}." for row in machines[-1:]]
    parts += [_runs(machines)]
    parts += [_drained(rows, kind) for kind in drain.KINDS]
    parts.append(_followed(rows))
    parts += [_crashed(rows, job) for job in (contender.COPY, contender.POSTGRES)]
    parts.append(_failed(rows))
    return "\n\n".join(part for part in parts if part)


def _runs(machines: Sequence[Row]) -> str:
    """When each run began that is in the tables, and of which code it was."""
    return "\n".join(
        f"- {row['began']} UTC, commit `{row['commit']}`" for row in machines if row.get("commit")
    )


def _drained(rows: Sequence[Row], kind: drain.Kind) -> str:
    mine = chosen(rows, phase="drain", job=kind.job, bytes=kind.bytes)
    base = {row["round"]: row for row in mine if row["contender"] == contender.REFERENCE}
    lines = []
    for name in _present(mine):
        own = chosen(mine, contender=name)
        done = [row for row in own if "error" not in row]
        cells = [
            _spread([row["rate_per_s"] / 1000 for row in done if row["rate_per_s"]], 0),
            _ratios(done, base, "rate_per_s"),
            _spread([row["cpu_us_per_record"] for row in done], 2),
            _ratios(done, base, "cpu_us_per_record"),
            _spread(
                [row["broker_us_per_record"] for row in done if "broker_us_per_record" in row], 2
            ),
            _spread([row["start_s"] for row in done], 1),
            _spread([row["start_cpu_s"] for row in done], 1),
            _spread([row["peak_mib"] for row in done], 0),
        ]
        lines.append(_line(name, cells, own))
    what = {
        contender.COPY: "copied",
        contender.AGGREGATE: "counted and added up by key",
        contender.POSTGRES: "to PostgreSQL",
        contender.FAN_OUT: "to Kafka and PostgreSQL",
    }[kind.job]
    return _table(
        f"**Drain: values of {kind.bytes:,} bytes, {what}**",
        [
            "k records/s",
            "ratio",
            "CPU s a million",
            "ratio",
            "broker's",
            "start, s",
            "CPU s of the start",
            "peak MiB",
        ],
        lines,
    )


def _followed(rows: Sequence[Row]) -> str:
    mine = chosen(rows, phase="tail")
    lines = []
    for interval_ms in sorted({row["interval_ms"] for row in mine}):
        for rate in dict.fromkeys(row["rate"] for row in mine if row["rate"] not in ("idle", "")):
            for name in _present(mine):
                own = chosen(mine, contender=name, interval_ms=interval_ms, rate=rate)
                if not own:
                    continue
                idle = chosen(mine, contender=name, interval_ms=interval_ms, rate="idle")
                cells = [
                    _spread([row[f"p{p}_ms"] for row in own if f"p{p}_ms" in row], 0)
                    for p in (50, 95, 99)
                ]
                cells.append(_spread([row["cores"] for row in own], 2))
                cells.append(_spread([row["cores"] for row in idle], 2))
                rates = _spread([row["rate_per_s"] for row in own], 0) if rate == "half" else rate
                lines.append(_line(f"{interval_ms:,} ms, {rates}/s | {name}", cells, own))
    return _table(
        "**Tail: visible latency in ms, and cores used**",
        ["contender", "p50", "p95", "p99", "cores", "cores, idle"],
        lines,
        first="interval, rate",
    )


def _crashed(rows: Sequence[Row], job: str) -> str:
    mine = chosen(rows, phase="crash", job=job)
    lines = []
    for name in _present(mine):
        for means in dict.fromkeys(row["means"] for row in chosen(mine, contender=name)):
            own = chosen(mine, contender=name, means=means)
            done = [row for row in own if "error" not in row]
            cells = [
                _spread([row["recovery_s"] for row in done], 1),
                f"{sum(row['repeats'] for row in done):,}",
                f"{sum(row['lost'] for row in done):,}",
            ]
            lines.append(_line(f"{name}, {means}", cells, own))
    where = "Kafka to Kafka" if job == contender.COPY else "Kafka to PostgreSQL"
    return _table(
        f"**Crash, {where}: SIGKILL at {crash.RATE_PER_S:,} records/s**",
        ["s to the first new record", "duplicates", "losses"],
        lines,
    )


def _failed(rows: Sequence[Row]) -> str:
    failed = [row for row in rows if "error" in row]
    return "\n".join(
        f"- failed: {row['phase']}, {row['contender']}, round {row['round'] + 1}: "
        f"{row['error'].strip().splitlines()[0][:200]}"
        for row in failed
    )


def _line(name: str, cells: Sequence[str], own: Sequence[Row]) -> str:
    exact = sum(bool(row["exact"]) for row in own)
    if exact < len(own):
        cells = [cell if cell == NOTHING else f"~~{cell}~~" for cell in cells]
    return f"| {name} | {' | '.join(cells)} | {exact} of {len(own)} |"


def _table(
    title: str, columns: Sequence[str], lines: Sequence[str], first: str = "contender"
) -> str:
    if not lines:
        return ""
    heads = [first, *columns, "exact runs"]
    return "\n".join([title, "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines])


def _present(rows: Sequence[Row]) -> list[str]:
    found = {row["contender"] for row in rows}
    return [name for name in contender.BY_NAME if name in found]


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return NOTHING
    middle = f"{statistics.median(values):,.{digits}f}"
    return (
        middle
        if len(values) == 1
        else f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    )


def _ratios(rows: Sequence[Row], base: dict[int, Row], name: str) -> str:
    pairs = [(row[name], base[row["round"]].get(name)) for row in rows if row["round"] in base]
    return _spread([value / by for value, by in pairs if value and by], 2)


def put_into(page: Path, text: str) -> None:
    """Replace what the page has between its two marks."""
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no lines {BEGIN!r} and {END!r}")
    page.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.tables", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--into", type=Path, help="the page whose tables are replaced")
    given = parser.parse_args()
    text = markdown(read(given.results))
    if given.into:
        put_into(given.into, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
