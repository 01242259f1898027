"""``arrow_kafka`` beside ``read_kafka``, in turn in one warm session: python -m bench.live
[--rounds N] [--records N] [--bytes N] [--per-epoch N] [--ways a,b].
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from confluent_kafka import Consumer, TopicPartition

from bench import report
from bench.live.job import READ, WAYS
from bench.load import PARTITIONS, Load, fill
from exactum.local import LocalKafka

Life = dict[str, Any]
"""What ``job.copied`` says of one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="after one that does not count (3)")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a record's value (100)")
    parser.add_argument("--per-epoch", type=int, default=500_000)
    parser.add_argument("--ways", default=",".join(WAYS))
    chosen = parser.parse_args()
    report.console.print(report.machine())
    ways = chosen.ways.split(",")
    load = Load(chosen.records, chosen.bytes)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalKafka(
            properties={"log.retention.ms": -1, "num.network.threads": 2, "num.io.threads": 2}
        ) as kafka,
    ):
        fill(kafka, load)
        # The order turned round each time.
        turns = [ways if number % 2 else ways[::-1] for number in range(chosen.rounds + 1)]
        lives = [(number, way) for number, turn in enumerate(turns) for way in turn]
        targets = [f"out-{number}-{way}" for number, way in lives]
        for target in targets:
            kafka.create_topic(target, partitions=PARTITIONS)
        found = run(kafka, load, chosen.per_epoch, [way for _, way in lives], targets, folder)
        whole = committed(kafka, load.topic)
        for target in targets:
            copy = committed(kafka, target)
            if copy != whole:
                raise RuntimeError(f"{target} has (records, sum) {copy}, its source {whole}")
    show(load, chosen.per_epoch, found[len(ways) :])


def run(
    kafka: LocalKafka, load: Load, per_epoch: int, ways: list[str], targets: list[str], folder: str
) -> list[Life]:
    """What the job says of each life."""
    job = {
        "servers": kafka.bootstrap_servers,
        "source": load.topic,
        "targets": targets,
        "ways": ways,
        "folder": folder,
        "broker": kafka.pid(),
        "per_epoch": per_epoch,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.live.job", json.dumps(job)],
        stdout=subprocess.PIPE,
        text=True,
    )
    found = []
    for line in process.stdout or ():
        if not line.startswith("{"):
            continue
        life = json.loads(line)
        one = figures(life, load)
        report.console.print(
            f"{life['way']:12} {one.rate / 1000:7.0f} k/s {one.client_us:5.2f} us, broker "
            f"{one.broker_us:5.2f}, "
            f"{len(life['told'])} epochs, whole query {life['query_s']:.1f} s"
        )
        found.append(life)
    if process.wait() != 0:
        raise RuntimeError(f"the job ended with {process.returncode}")
    return found


@dataclass(frozen=True)
class Figures:
    """Of one life, without its first epoch: records a second, and us of CPU a record."""

    rate: float
    client_us: float
    broker_us: float

    @property
    def whole_us(self) -> float:
        """Of client and broker: where they share the cores, it bounds the rate."""
        return self.client_us + self.broker_us


def figures(life: Life, load: Load) -> Figures:
    told = life["told"]
    (began_s, client_s, broker_s), last = told[0], told[-1]
    records = load.records * (len(told) - 1) / len(told)
    return Figures(
        records / (last[0] - began_s),
        (last[1] - client_s) * 1e6 / records,
        (last[2] - broker_s) * 1e6 / records,
    )


def committed(kafka: LocalKafka, topic: str) -> tuple[int, int]:
    """How many committed records the topic has, and the sum of their values' checksums."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "count",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    records, checksum, open_ = 0, 0, PARTITIONS
    while open_:
        for message in consumer.consume(10_000, 0.1):
            if message.error() is None:
                records += 1
                checksum += crc32(message.value())
            else:
                open_ -= 1
    consumer.close()
    return records, checksum


def show(load: Load, per_epoch: int, lives: list[Life]) -> None:
    of_way: dict[str, list[Figures]] = defaultdict(list)
    for life in lives:
        of_way[life["way"]].append(figures(life, load))
    base = of_way.get(READ) or next(iter(of_way.values()))
    report.table(
        f"{load.records:,} records of {load.bytes} bytes, {per_epoch:,} an epoch, without the "
        "first epoch: median (min to max)",
        ["way", "k/s", "ratio", "client CPU us a record", "broker CPU us", "both, ratio"],
        [
            [
                way,
                report.spread([one.rate / 1000 for one in all_], 0),
                report.ratios([one.rate for one in all_], [one.rate for one in base]),
                report.spread([one.client_us for one in all_]),
                report.spread([one.broker_us for one in all_]),
                report.ratios([one.whole_us for one in all_], [one.whole_us for one in base]),
            ]
            for way, all_ in of_way.items()
        ],
    )


if __name__ == "__main__":
    main()
