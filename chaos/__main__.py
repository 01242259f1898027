"""``python -m chaos``: play cells of the fault matrix on real servers, keep the outcomes, show how
many were exact.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import platform
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from chaos import ROOT, pool, report
from chaos.cell_run import Outcome
from chaos.clock import buildable
from chaos.code import COMMIT
from chaos.matrix import Cell, cells

RESULTS = ROOT / ".played" / f"chaos-{COMMIT or 'no-commit'}.jsonl"
"""Outcomes hold for the code that was played."""
SEED = 7


def unplayed(cell: Cell) -> str:
    """Why a cell that can happen is never played here; empty if it is."""
    if cell.fault == "clock" and not buildable():
        return "there is no C compiler here to build chaos/clock.c with"
    return ""


def playable() -> list[Cell]:
    return [cell for cell in cells() if not cell.impossible and not unplayed(cell)]


def chosen(patterns: Sequence[str]) -> list[Cell]:
    """Cells by name or by shell pattern (``kafka:*:kill-*``), in the order of the patterns.

    Those of one pattern are shuffled, always alike, so that a run that is cut short has played a
    fair sample.

    Raises:
        SystemExit: a pattern matches nothing.
    """
    there = playable()
    found: dict[Cell, None] = {}
    for pattern in patterns:
        matching = [cell for cell in there if fnmatch.fnmatch(cell.name, pattern)]
        if not matching:
            sys.exit(f"no cell {pattern!r} can be played: see python -m chaos --list")
        random.Random(SEED).shuffle(matching)
        found.update(dict.fromkeys(matching))
    return list(found)


def read(path: Path) -> dict[str, Outcome]:
    """The last outcome of each cell."""
    written = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    outcomes = [Outcome(**{**fields, "stops": tuple(fields["stops"])}) for fields in written]
    return {outcome.cell: outcome for outcome in outcomes}


def main() -> int:
    arguments = parser().parse_args()
    if arguments.list:
        for cell in cells():
            print(cell.name, cell.impossible or unplayed(cell), sep="\t")
        return 0
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    patterns = arguments.cell or ["*"]
    wanted = chosen(patterns)
    if not arguments.cell or arguments.resume:
        known = read(results)
        again = {"void", "red"} if arguments.red else {"void"}
        wanted = [
            cell for cell in wanted if cell.name not in known or known[cell.name].verdict in again
        ]
    if not arguments.report_only:
        play(wanted, arguments, results)
    outcomes = read(results)
    print(report.table(outcomes))
    red, void = (
        [name for name in outcomes if outcomes[name].verdict == verdict]
        for verdict in ("red", "void")
    )
    left = f", {len(void)} could not be played ({', '.join(void)})" if void else ""
    print(
        f"{len(outcomes) - len(void)} cells played, {len(red)} red{left}: {results}",
        *red,
        sep="\n  ",
    )
    return 1 if red else 0


def play(wanted: Sequence[Cell], arguments: argparse.Namespace, results: Path) -> None:
    """Play them until all are played, the time is over, or somebody asks it to end (SIGINT,
    SIGTERM).
    """
    if not wanted:
        return
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            each, signal.default_int_handler
        )  # also where a shell has it ignored in the background
    print(
        f"{len(wanted)} cells, seed {arguments.seed}, {arguments.processes} sets of servers, "
        f"{platform.node()}",
        flush=True,
    )
    deadline = time.monotonic() + 60 * arguments.minutes
    outcomes = pool.play(wanted, arguments.seed, arguments.processes)
    try:
        for number, outcome in enumerate(outcomes, 1):
            with results.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            shown = (
                outcome.note
                if outcome.verdict != "green"
                else "; ".join([outcome.note, *outcome.stops])[:150]
            )
            print(
                f"{number:4}/{len(wanted)} {outcome.verdict:5} {outcome.seconds:5.1f} s "
                f"{outcome.cell}  {shown}",
                flush=True,
            )
            if outcome.verdict == "red":
                print(
                    f"      again: python -m chaos --cell {outcome.cell} --seed {outcome.seed}",
                    flush=True,
                )
            if time.monotonic() > deadline:
                print("the time is over", flush=True)
                break
    except KeyboardInterrupt:
        print("stopping when the cells at hand are played", flush=True)
    finally:
        outcomes.close()  # type: ignore[attr-defined]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    result.add_argument(
        "--cell",
        action="append",
        metavar="SINK:POINT:FAULT",
        help="this one, or those that match; again and again",
    )
    result.add_argument("--seed", type=int, default=SEED)
    result.add_argument(
        "--processes",
        type=int,
        default=2,
        metavar="N",
        help="sets of servers at once, each with servers of its own",
    )
    result.add_argument(
        "--minutes", type=float, default=24 * 60, help="begin no further cell after so long"
    )
    result.add_argument(
        "--resume",
        action="store_true",
        help="with --cell: only those not played yet (the rule without --cell)",
    )
    result.add_argument("--red", action="store_true", help="when resuming: the red ones as well")
    result.add_argument(
        "--results",
        default=str(RESULTS),
        metavar="FILE",
        help="default: .cache/chaos-<commit>.jsonl",
    )
    result.add_argument("--report-only", action="store_true", help="play nothing, show the table")
    result.add_argument(
        "--list", action="store_true", help="every cell, with the reason where it is never played"
    )
    return result


if __name__ == "__main__":
    sys.exit(main())
