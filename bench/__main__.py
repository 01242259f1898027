"""Run the benchmarks: python -m bench [--rounds N] [--scale X] [--only epochs|targets|visible].
Kafka to Kafka is in bench.peers. How soon rows are visible in a table is measured by ``--only
visible`` alone.
"""

from __future__ import annotations

import argparse

from bench import epochs, report, targets, visible
from exactum.local import LocalKafka


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (5)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="size of the loads, length of a look; 0.1 for a quick one (1)",
    )
    parser.add_argument(
        "--epochs", type=int, default=1_000, help="epochs of the epoch benchmark (1000)"
    )
    parser.add_argument("--only", choices=("epochs", "targets", "visible"))
    chosen = parser.parse_args()
    report.console.print(report.machine())
    if chosen.only == "visible":
        visible.bench(chosen.rounds, chosen.scale)
    if chosen.only in (None, "targets"):
        targets.bench(chosen.rounds, chosen.scale)
    if chosen.only in (None, "epochs"):
        own = {"log.retention.ms": -1, "num.network.threads": 2, "num.io.threads": 2}
        with LocalKafka(properties=own) as kafka:
            epochs.bench(kafka, chosen.epochs)


if __name__ == "__main__":
    main()
