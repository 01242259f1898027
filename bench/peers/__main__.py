"""Run the benchmark against other systems: python -m bench.peers [--only drain,tail,crash]
[--rounds N] [--scale X]

Results are appended to --results as JSON lines; tables are made of them at the end, and at any
time by python -m bench.peers.tables RESULTS.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import report
from bench.peers import contender, crash, drain, java, settings, tables, tail
from bench.peers.contender import COPY, POSTGRES, TABLE_JOBS
from bench.peers.place import Place
from bench.peers.result import Results
from exactum.local.broker import KAFKA_VERSION
from exactum.spark.startup import class_archive

PHASES = ("drain", "tail", "crash")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds (3)")
    parser.add_argument("--tail-rounds", type=int, default=1, help="of them with tail (1)")
    parser.add_argument(
        "--minutes", type=float, default=44, help="when they are over, no further run is begun (44)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="size of the loads to drain (1)")
    parser.add_argument("--only", type=_words, default=PHASES, help="phases: drain,tail,crash")
    parser.add_argument("--jobs", type=_words, default=(), help="copy,aggregate,postgres,fan-out")
    parser.add_argument("--bytes", type=int, help="of the copied records: 100 or 1000")
    parser.add_argument(
        "--contenders", type=_names, default=(), help="names, separated by semicolons"
    )
    parser.add_argument(
        "--intervals", type=_numbers, default=tail.INTERVALS_MS, help="of tail, in ms"
    )
    parser.add_argument("--seed", type=int, default=None, help="of the instants of the kills")
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"))
    given = parser.parse_args()
    signal.signal(
        signal.SIGTERM,
        lambda *_: sys.exit("bench.peers: terminated; everything it started is stopped"),
    )
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    results = Results(given.results)
    results.add(
        phase="machine",
        text=f"{report.machine()}; Kafka {KAFKA_VERSION}, Flink {java.FLINK_VERSION} "
        f"(kafka connector {java.FLINK_KAFKA_VERSION}, JDBC connector {java.FLINK_JDBC_VERSION}), "
        f"Kafka Streams {KAFKA_VERSION}",
        settings=settings.described(),
        began=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        commit=report.commit(),
        seed=seed,
    )
    began_s = time.monotonic()
    class_archive.make(echo=report.console.print)  # else a session has it made meanwhile
    with ExitStack() as stack:
        place = Place(stack, postgres=not given.jobs or bool(set(TABLE_JOBS) & set(given.jobs)))
        if "drain" in given.only:
            _warm(place, given.scale)
        left_out = 0
        for run in _runs(place, given, seed, results):
            if time.monotonic() - began_s > given.minutes * 60:
                left_out += 1
            else:
                run()
    if left_out:
        report.console.print(f"the time was over: {left_out} runs of the last rounds were left out")
    report.console.print(
        f"{(time.monotonic() - began_s) / 60:.1f} minutes; the kills repeat with --seed {seed}"
    )
    report.console.print(tables.markdown(results.rows), soft_wrap=True)


def _warm(place: Place, scale: float) -> None:
    """The broker's JVM compiles as well, and whoever came first would pay for it.

    After one such drain it took two to three times as much CPU for each record of the next one as
    of the last.
    """
    report.console.print("to warm the broker up, and not counted:")
    results = Results(Path(os.devnull))
    for kind in (drain.KINDS[0], drain.KINDS[1], drain.KINDS[0]):
        drain.bench(place, kind, contender.BY_NAME[contender.REFERENCE], 0, scale, results)
        if not results.rows[-1]["exact"]:
            raise SystemExit("bench.peers: the broker could not be warmed up; see the error above")


def _runs(
    place: Place, given: argparse.Namespace, seed: int, results: Results
) -> Iterator[Callable[[], None]]:
    """Round by round, and everybody in each; nothing is looked at before it is its turn."""
    for number in range(given.rounds):
        if "drain" in given.only:
            yield from _drains(place, given, number, results)
        if "tail" in given.only and number < given.tail_rounds:
            yield from _tails(place, given, number, results)
        if "crash" in given.only:
            yield from _crashes(place, given, number, seed, results)


def _drains(
    place: Place, given: argparse.Namespace, number: int, results: Results
) -> Iterator[Callable[[], None]]:
    for kind in drain.KINDS:
        if (given.jobs and kind.job not in given.jobs) or (
            given.bytes and kind.bytes != given.bytes
        ):
            continue
        for each in contender.turned(contender.of(kind.job, given.contenders), number):
            yield partial(drain.bench, place, kind, each, number, given.scale, results)


def _tails(
    place: Place, given: argparse.Namespace, number: int, results: Results
) -> Iterator[Callable[[], None]]:
    if given.jobs and COPY not in given.jobs:
        return
    for interval_ms in given.intervals:
        for each in contender.turned(contender.of(COPY, given.contenders), number):
            if tail.takes_part(each, interval_ms):
                yield partial(tail.bench, place, each, interval_ms, number, results)


def _crashes(
    place: Place, given: argparse.Namespace, number: int, seed: int, results: Results
) -> Iterator[Callable[[], None]]:
    for job in (COPY, POSTGRES):
        if given.jobs and job not in given.jobs:
            continue
        for each in contender.turned(contender.of(job, given.contenders), number):
            for means in crash.means_of(each):
                yield partial(crash.bench, place, each, job, means, number, seed, results)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    unknown = [name for name in names if name not in contender.BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is none of {'; '.join(contender.BY_NAME)}"
        )
    return names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
