"""Run the benchmarks: python -m bench [--rounds N] [--scale X] [--only epochs|targets]. Kafka to
Kafka is in bench.peers.
"""

from __future__ import annotations

import argparse

from bench import epochs, report, targets
from exactum.local import LocalKafka


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="alternating rounds of the targets (5)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="size of the loads; 0.1 for a quick look (1)"
    )
    parser.add_argument(
        "--epochs", type=int, default=1_000, help="epochs of the epoch benchmark (1000)"
    )
    parser.add_argument("--only", choices=("epochs", "targets"))
    chosen = parser.parse_args()
    report.console.print(report.machine())
    if chosen.only != "epochs":
        targets.bench(chosen.rounds, chosen.scale)
    if chosen.only != "targets":
        own = {"log.retention.ms": -1, "num.network.threads": 2, "num.io.threads": 2}
        with LocalKafka(properties=own) as kafka:
            epochs.bench(kafka, chosen.epochs)


if __name__ == "__main__":
    main()
