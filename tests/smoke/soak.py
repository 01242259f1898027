"""Random deaths over Spark Connect, for some minutes (`make connect-soak`). Queries from a topic
into files and a topic, with and without state. Spark's server, the process beside it or its tasks
are killed at a drawn step or at any moment; what is left may go on beside the next life. A seed
draws the same faults again.

    python -m tests.smoke.soak --seed 7 --minutes 5
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from exactum import errors
from exactum.local import LocalKafka
from tests.kit.crash import oracle
from tests.smoke.cell import BATCHES, DYING, KEYS, LIFE_TIMEOUT_S, ROWS, row_of
from tests.smoke.queries import EVENTS, Query, as_json

DEATHS, MOMENT_MAX_S = 5, 6.0
"""Of one query; and how long after its micro-batch was planned."""
VICTIMS = {"server": "java", "worker": "foreach_batch_worker", "tasks": "pyspark.daemon"}
"""Who is killed, and a word of the command of each of its processes."""
EXCUSED = {"EpochAborted", "Fenced", "OutcomeUnknown", "Unavailable"}
"""Errors of exactum after which a query is started again. Spark's own are excused as well."""


class SoakedQuery(Query):
    """It has a few more micro-batches before each of its lives."""

    def __init__(self, kafka: LocalKafka, folder: Path, chance: random.Random, frame: str) -> None:
        super().__init__(kafka, connect=True, folder=folder)
        self.given["format"] = "json"
        self.chance, self.frame, self.count, self.planned = chance, frame, 0, 0
        self.place = oracle.Checkpoint(self.checkpoint, self.source)

    def play(self, deadline_s: float) -> None:
        with oracle.CommittedReader(self.servers, [self.topic]) as reader:
            with contextlib.ExitStack() as left:
                for _ in range(DEATHS):
                    if time.monotonic() < deadline_s:
                        self.dies_somewhere(left)
                        self.check_so_far(reader)
                self.finishes(self.frame)
            oracle.check_at_rest(self.servers, [self.topic], self.place.query_id)
            self.check(self.expected())
            assert self.planned == self.count, f"{self.planned} of {self.count} rows were read"
            later = oracle.read_all(self.servers, [self.topic])
            oracle.check_same(reader.caught_up(), later)
        print(f"{self.frame}: exact, {self.count} rows, {self._lives} lives", flush=True)

    def dies_somewhere(self, left: contextlib.ExitStack) -> None:
        """What is left when the server is gone is killed by ``left``."""
        more = self.chance.randint(1, BATCHES) * ROWS
        self.produce([as_json(row_of(self.count + n)) for n in range(more)])
        self.count += more
        moment_s, nth = self.chance.uniform(0, MOMENT_MAX_S), self.chance.randint(1, 2)
        event, whom = self.chance.choice(EVENTS), self.chance.choice([*VICTIMS])
        event = "" if whom == "tasks" or self.chance.random() < 0.5 else event
        at = f"{event}:{nth if event.islower() else self.logged('commits') + nth}"
        print(f"  {whom} dies at {at if event else f'any moment, {moment_s:.1f} s'}", flush=True)
        dying, before = self.folder / DYING, self.logged("offsets")
        life = self.begin(self.frame, **({"kill": at, "whom": whom} if event else {}))
        left.callback(life.kill)

        def begun() -> bool:
            begins = dying.exists() if event else self.logged("offsets") > before
            return begins or not life.alive

        life.until(begun, "a micro-batch is planned, or it dies", LIFE_TIMEOUT_S)
        if not event:
            with contextlib.suppress(AssertionError):  # the moment has come
                life.until(lambda: not life.alive, "its end", moment_s)
        ended = not life.alive
        if not event:
            strike(life.members(), VICTIMS[whom])
        if ended or whom != "server":
            self.judge(life.ends())
        dying.unlink(missing_ok=True)

    def judge(self, said: dict[str, Any]) -> None:
        """Raises AssertionError for an end that no death excuses."""
        error, text = said.get("error", ""), said.get("text", "")
        print(f"    {error or 'it had ended'} {text[:150]!r}", flush=True)
        ours = hasattr(errors, error)
        assert error in EXCUSED if ours else "Traceback" not in text, said

    def expected(self) -> Counter[str]:
        """Of the micro-batches that Spark has planned, by the offsets in its own log."""
        found, total = Counter[str](), Counter[str]()
        for batch in range(self.logged("offsets") + 1):
            since, ends = self.place.ends(batch - 1), self.place.ends(batch)
            own = [2 * o + p for p, end in ends.items() for o in range(since.get(p, 0), end)]
            keys = Counter(str(number % KEYS) for number in own)
            total += keys
            if self.frame == "counted":
                found.update(f"{key}={total[key]}:n" for key in keys)
            else:
                found.update(f"{number % KEYS}={number}:v" for number in own)
        self.planned = total.total()
        return found

    def check_so_far(self, reader: oracle.CommittedReader) -> None:
        found = dict(self.found())  # first: what is left may write meanwhile
        expected = self.expected()
        for where, rows in found.items():
            assert not rows - expected, f"{where}: too many: {rows - expected}"
        oracle.check_no_duplicates(reader.seen[:])


def strike(processes: set[int], word: str) -> None:
    for pid in processes:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if word in " ".join(psutil.Process(pid).cmdline()[:3]):
                os.kill(pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=5.0)
    told = parser.parse_args()
    again = f"--seed {told.seed} --minutes {told.minutes}"
    print(f"soak over Spark Connect, PySpark {metadata.version('pyspark')}, {again}", flush=True)
    deadline_s, chance, queries = time.monotonic() + 60 * told.minutes, random.Random(told.seed), 0
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="exactum-soak-") as folder:
        while time.monotonic() < deadline_s:
            frame, queries = ("counted", "plain")[queries % 2], queries + 1
            try:
                SoakedQuery(kafka, Path(folder, f"q{queries}"), chance, frame).play(deadline_s)
            except AssertionError as error:
                print(f"NOT exact: {error}\nagain: python -m tests.smoke.soak {again}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
