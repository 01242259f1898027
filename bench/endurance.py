"""Weeks of epochs in fast motion: does anything grow? Memory, open files, transactional ids,
records, offsets.

python -m bench.endurance [--epochs 10000]

A stateful query from Kafka to Kafka drains a topic in many small epochs, and this process looks at
it from outside every few seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from kafka.errors import RetriableError

from bench import report
from bench.load import Load, fill
from bench.process import ContenderProcess, tree
from exactum.checkpoint.layout import DECISIONS
from exactum.local import LocalKafka
from kafka import KafkaAdminClient

RECORDS_PER_EPOCH = 20
PARTITIONS = 2
GROUP = "endurance"
SAMPLE_EVERY_S = 5.0
WARM_EPOCHS = 500
"""Before these a JVM still grows into its heap."""


@dataclass(frozen=True)
class Sample:
    """``*_mib`` are resident set sizes; ``lag`` is records behind the last epoch by the group's
    committed offsets.
    """

    epoch: int
    jvm_mib: float
    driver_mib: float
    workers_mib: float
    open_files: int
    transactional_ids: int
    decision_records: int
    checkpoint_files: int
    lag: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.endurance", description=__doc__)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument("--samples", type=Path, help="where the samples are kept, as JSON lines")
    chosen = parser.parse_args()
    if chosen.epochs < 2 * WARM_EPOCHS:
        parser.error(
            f"--epochs: at least {2 * WARM_EPOCHS}, the first {WARM_EPOCHS} are left out of the "
            "table"
        )
    signal.signal(
        signal.SIGTERM,
        lambda *_: sys.exit("bench.endurance: terminated; what it started is stopped"),
    )
    report.console.print(report.machine())
    show(run(chosen.epochs, chosen.samples))


def run(epochs: int, kept: Path | None = None) -> list[Sample]:
    """The samples of one run, each appended to the file ``kept`` as it comes.

    Raises:
        RuntimeError: the query failed.
    """
    load = Load(epochs * RECORDS_PER_EPOCH, 20)
    samples: list[Sample] = []
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        fill(kafka, load, PARTITIONS)
        kafka.create_topic("out", partitions=PARTITIONS)
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        checkpoint = Path(folder) / "checkpoint"
        command = [
            sys.executable,
            "-m",
            "bench.endurance_job",
            kafka.bootstrap_servers,
            load.topic,
            "out",
        ]
        log = Path(folder) / "log"
        driver = ContenderProcess([*command, str(checkpoint), GROUP, str(RECORDS_PER_EPOCH)], log)
        try:
            while driver.status() is None:
                time.sleep(SAMPLE_EVERY_S)
                sample = look(driver.pid, checkpoint, admin)
                if sample is not None:
                    samples.append(sample)
                    report.console.print(f"epoch {sample.epoch:,} of {epochs:,}")
                    keep(sample, kept)
        finally:
            driver.kill()
        if driver.status():
            raise RuntimeError(f"the query ended with {driver.status()}: {driver.log_tail()}")
    return samples


def keep(sample: Sample, path: Path | None) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")


def look(driver: int, checkpoint: Path, admin: KafkaAdminClient) -> Sample | None:
    """One sample; None before the first epoch, and where the query ends meanwhile."""
    commits = checkpoint / "commits"
    try:
        epoch = max(int(name) for name in os.listdir(commits) if name.isdigit())
        planned = json.loads((checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2])
        memory, files = footprint(driver)
    except (OSError, ValueError, IndexError):
        return None
    if not memory["java"]:  # it ends just now
        return None
    (_, ends), *_ = planned.items()
    try:
        found = admin.list_group_offsets({GROUP: None})[GROUP]
    except RetriableError:  # the group's coordinator is still looked for
        return None
    committed = {partition.partition: each.offset for partition, each in found.items()}
    return Sample(
        epoch,
        memory["java"],
        memory["driver"],
        memory["python"],
        files,
        sum(len(found) for found in admin.list_transactions().values()),
        len(list((checkpoint / DECISIONS).glob("*.json"))),
        sum(len(names) for _, _, names in os.walk(checkpoint)),
        sum(end - committed.get(int(partition), 0) for partition, end in ends.items()),
    )


def footprint(driver: int) -> tuple[dict[str, float], int]:
    """(MiB by kind of process, open files of all)."""
    memory, files = {"java": 0.0, "driver": 0.0, "python": 0.0}, 0
    for process in tree(driver):
        try:
            name, pid = process.name(), process.pid
            resident = process.memory_info().rss / 2**20
            files += process.num_fds()
        except psutil.Error:
            continue
        kind = "driver" if pid == driver else "java" if name == "java" else "python"
        memory[kind] += resident
    return memory, files


MEASURES: Mapping[str, Callable[[Sample], float]] = {
    "JVM, MiB": lambda s: s.jvm_mib,
    "driver's Python, MiB": lambda s: s.driver_mib,
    "Python workers, MiB": lambda s: s.workers_mib,
    "open files": lambda s: s.open_files,
    "transactional ids on the broker": lambda s: s.transactional_ids,
    "decision records": lambda s: s.decision_records,
    "files in the checkpoint": lambda s: s.checkpoint_files,
    "records between the last epoch and the group's offsets": lambda s: s.lag,
}


def show(samples: list[Sample]) -> None:
    """First quarter after the warm-up against the last quarter."""
    warm = [s for s in samples if s.epoch >= WARM_EPOCHS]
    quarter = max(1, len(warm) // 4)
    rows = [
        [
            name,
            report.spread([of(s) for s in warm[:quarter]], 0),
            report.spread([of(s) for s in warm[-quarter:]], 0),
        ]
        for name, of in MEASURES.items()
    ]
    first, last = (
        f"epochs {part[0].epoch:,} to {part[-1].epoch:,}"
        for part in (warm[:quarter], warm[-quarter:])
    )
    report.table("what a long run holds on to: median (min to max)", ["", first, last], rows)


if __name__ == "__main__":
    main()
