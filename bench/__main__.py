"""Run the benchmarks: python -m bench [--rounds N] [--scale X] [--only drain|epochs|targets]."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import drain, epochs, report, targets
from exactum.local import LocalKafka


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="alternating rounds of the drain benchmark (5)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="size of the loads; 0.1 for a quick look (1)"
    )
    parser.add_argument(
        "--epochs", type=int, default=1_000, help="epochs of the epoch benchmark (1000)"
    )
    parser.add_argument("--only", choices=("drain", "epochs", "targets"))
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="drain: the exactum of another checkout as well, built with make setup",
    )
    chosen = parser.parse_args()
    report.console.print(report.machine())
    if chosen.only in (None, "targets"):
        targets.bench(chosen.rounds, chosen.scale)
    if chosen.only == "targets":
        return
    with LocalKafka(
        properties={"log.retention.ms": -1, "num.network.threads": 2, "num.io.threads": 2}
    ) as kafka:
        if chosen.only in (None, "epochs"):
            epochs.bench(kafka, chosen.epochs)
        if chosen.only in (None, "drain"):
            drain.bench(kafka, chosen.rounds, chosen.scale, chosen.against)


if __name__ == "__main__":
    main()
