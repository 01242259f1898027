"""Run it: python -m bench.scale [--rounds N] [--widths 1,4,16] [--only batches|cluster]."""

from __future__ import annotations

import argparse
import signal
import sys

from bench import report
from bench.scale import batches
from exactum.local import LocalKafka

WIDTHS = "1,4,16,64,256"
CLUSTER_WIDTHS = "16,64"
BROKER = {"log.retention.ms": -1}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each part (3)")
    parser.add_argument(
        "--widths",
        help=f"partitions and tasks ({WIDTHS}; on the cluster {CLUSTER_WIDTHS})",
    )
    parser.add_argument("--only", choices=("batches", "cluster"))
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster is ended as well
    report.console.print(report.machine())

    def widths(default: str) -> list[int]:
        return [int(width) for width in (chosen.widths or default).split(",")]

    with LocalKafka(properties=BROKER) as kafka:
        if chosen.only in (None, "batches"):
            batches.local(kafka, widths(WIDTHS), chosen.rounds)
        if chosen.only in (None, "cluster"):
            batches.cluster(kafka, widths(CLUSTER_WIDTHS), chosen.rounds)


if __name__ == "__main__":
    main()
