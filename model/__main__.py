"""Check the decision protocol by machine.

python -m model tla [--large]                  the TLA+ model and its mutations, by TLC
python -m model schedules --count 1000000      the real coordinator under random schedules
python -m model broken                         broken coordinators under the same schedules
python -m model replay "b2p1t1r0k: a12 b* a*"  one schedule again
"""

from __future__ import annotations

import argparse
import random
import sys

from rich.console import Console

from model import schedules, tlc
from model.simulation import Violation, replay

PIPE_WIDTH = 120
"""Columns of the tables where nobody says how wide a terminal is."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    tla = commands.add_parser("tla")
    tla.add_argument(
        "--large", action="store_true", help="the large configuration (see docs/model.md)"
    )
    tla.add_argument("--only", help="one model or mutation by its name")
    for name in ("schedules", "broken"):
        command = commands.add_parser(name)
        command.add_argument(
            "--seed", type=int, default=None, help="of the schedules (random, and printed)"
        )
        command.add_argument("--processes", type=int, default=schedules.default_processes())
        if name == "schedules":
            command.add_argument(
                "--count", type=int, default=20_000, help="how many schedules (20000)"
            )
    commands.add_parser("replay").add_argument("schedule")
    chosen = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    if chosen.command == "tla":
        return 0 if tlc.run(console, large=chosen.large, only=chosen.only) else 1
    if chosen.command == "replay":
        return _replay(console, chosen.schedule)
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(2**31)
    if chosen.command == "broken":
        console.print(f"seed {seed}")
        return 0 if schedules.hunt(console, seed, chosen.processes) else 1
    return 0 if schedules.run(console, seed, chosen.count, chosen.processes) else 1


def _replay(console: Console, schedule: str) -> int:
    try:
        console.print(replay(schedule))
    except Violation as violation:
        console.print(str(violation), markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
