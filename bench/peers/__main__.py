"""Run the benchmark against other systems: python -m bench.peers [--only drain,tail,crash] [--rounds N] [--scale X]

Results are appended to --results as JSON lines; tables and pictures are made of them at the end, and at any time by
python -m bench.peers.tables RESULTS and python -m bench.peers.pictures RESULTS FOLDER.
"""

from __future__ import annotations

import argparse
import random
import time
from contextlib import ExitStack
from pathlib import Path

from bench import report
from bench.peers import contender, crash, drain, java, settings, tables, tail
from bench.peers.contender import COPY, POSTGRES
from bench.peers.place import Place
from bench.peers.quix import VERSION as QUIX_VERSION
from bench.peers.result import Results
from exactum.local.jars import KAFKA_VERSION

PHASES = ("drain", "tail", "crash")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds of drain and crash (3)")
    parser.add_argument("--tail-rounds", type=int, default=1, help="alternating rounds of tail (1)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the loads to drain (1)")
    parser.add_argument("--only", type=_words, default=PHASES, help="phases: drain,tail,crash")
    parser.add_argument("--jobs", type=_words, default=(), help="copy,aggregate,postgres")
    parser.add_argument("--bytes", type=int, help="of the copied records: 100 or 1000")
    parser.add_argument("--contenders", type=_names, default=(), help="names, separated by semicolons")
    parser.add_argument("--intervals", type=_numbers, default=tail.INTERVALS_MS, help="of tail, in ms")
    parser.add_argument("--seed", type=int, default=None, help="of the instants of the kills")
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"))
    given = parser.parse_args()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    results = Results(given.results)
    results.add(
        phase="machine",
        text=f"{report.machine()}; Kafka {KAFKA_VERSION}, Flink {java.FLINK_VERSION} "
        f"(kafka connector {java.FLINK_KAFKA_VERSION}, JDBC connector {java.FLINK_JDBC_VERSION}), "
        f"Kafka Streams {KAFKA_VERSION}, Quix Streams {QUIX_VERSION}",
        settings=settings.described(),
        began=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        seed=seed,
    )
    began_s = time.monotonic()
    with ExitStack() as stack:
        place = Place(stack, postgres=not given.jobs or POSTGRES in given.jobs)
        for phase in given.only:
            {"drain": _drain, "tail": _tail, "crash": _crash}[phase](place, given, seed, results)
    report.console.print(f"{(time.monotonic() - began_s) / 60:.1f} minutes; the kills repeat with --seed {seed}")
    report.console.print(tables.markdown(results.rows), soft_wrap=True)


def _drain(place: Place, given: argparse.Namespace, seed: int, results: Results) -> None:
    for kind in drain.KINDS:
        if (given.jobs and kind.job not in given.jobs) or (given.bytes and kind.bytes != given.bytes):
            continue
        for number in range(given.rounds):
            for each in contender.turned(contender.of(kind.job, given.contenders), number):
                drain.bench(place, kind, each, number, given.scale, results)


def _tail(place: Place, given: argparse.Namespace, seed: int, results: Results) -> None:
    if given.jobs and COPY not in given.jobs:
        return
    for number in range(given.tail_rounds):
        for interval_ms in given.intervals:
            for each in contender.turned(contender.of(COPY, given.contenders), number):
                tail.bench(place, each, interval_ms, number, results)


def _crash(place: Place, given: argparse.Namespace, seed: int, results: Results) -> None:
    for job in (COPY, POSTGRES):
        if given.jobs and job not in given.jobs:
            continue
        for number in range(given.rounds):
            for each in contender.turned(contender.of(job, given.contenders), number):
                for means in crash.means_of(each):
                    crash.bench(place, each, job, means, number, seed, results)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    unknown = [name for name in names if name not in contender.BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {'; '.join(contender.BY_NAME)}")
    return names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
