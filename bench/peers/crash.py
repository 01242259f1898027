"""SIGKILL in the middle of the work, and what each contender's own means make of it.

Seconds run from the kill until the first record that was *sent after* the kill is visible. Losses
and duplicates are counted by the plain reader when everything has come to rest.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.contender import COPY, EXACTLY, REFERENCE, Contender
from bench.peers.order import Order
from bench.peers.place import ROOT, Place, Run
from bench.peers.records import Feeder
from bench.peers.result import Results, shortened
from bench.process import ContenderFailed, ContenderProcess, kill_tree

BYTES = 100
RATE_PER_S = 2_000
INTERVAL_MS = 500
WARM_S = 4.0
INSTANT_WITHIN_S = 2.0
"""The kill falls anywhere in so many seconds: several commit intervals."""
AFTERWARDS_S = 2.0
STANDBY_WARM_S = 8.0
START_TIMEOUT_MS = 600_000
RECOVERY_TIMEOUT_MS = 180_000
QUIET_MS = 3_000

RESTART, SUPERVISED, STANDBY = "started again at once", "exactum run", "exactum run --standby"
IMMEDIATELY = ("--restart-attempts", "9", "--restart-delay", "0 ms")
SUPERVISOR = "import sys; from exactum.ops.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Means:
    """How a contender comes back."""

    name: str

    def command(self, contender: Contender, order: Order) -> list[str]:
        own = contender.command(order)
        if self.name == RESTART:
            return own
        python, _, module, *arguments = own
        script = str(ROOT / Path(*module.split(".")).with_suffix(".py"))
        standby = ("--standby",) if self.name == STANDBY else ()
        return [
            python,
            "-c",
            SUPERVISOR,
            "run",
            script,
            *IMMEDIATELY,
            *standby,
            "--",
            *arguments,
        ]


def means_of(contender: Contender) -> Sequence[Means]:
    if contender.engine != "exactum":
        return (Means(RESTART),)
    # With a database, or another reader, the standby is the same.
    if contender.guarantee == EXACTLY and contender.name == REFERENCE:
        return (Means(SUPERVISED), Means(STANDBY))
    return (Means(SUPERVISED),)


def bench(
    place: Place,
    contender: Contender,
    job: str,
    means: Means,
    number: int,
    seed: int,
    results: Results,
) -> None:
    """One run; one that failed is a result as well."""
    instant_s = (
        random.Random(f"{seed} {number} {contender.name} {job} {means.name}").random()
        * INSTANT_WITHIN_S
    )
    row: dict[str, Any] = {
        "phase": "crash",
        "job": job,
        "contender": contender.name,
        "means": means.name,
    }
    row |= {"round": number, "seed": seed, "instant_s": instant_s, "interval_ms": INTERVAL_MS}
    with (
        place.writer(BYTES, keyed=False, linger_ms=0) as writer,
        place.run(
            contender, job, INTERVAL_MS, writer.topic, lambda order: means.command(contender, order)
        ) as run,
        Feeder(writer) as feeder,
    ):
        if job == COPY:
            place.reader.follow()
        feeder.rate(RATE_PER_S)
        lives = [run.start()]
        try:
            found = killed(run, lives, means, instant_s)
            time.sleep(AFTERWARDS_S)
            sent = feeder.stop()
            seen = run.wait(lives[-1], sent, QUIET_MS, RECOVERY_TIMEOUT_MS)
            lost = sent - seen["visible"]
            found |= {
                "sent": sent,
                "lost": lost,
                "repeats": seen["repeats"],
                "exact": not lost and not seen["repeats"],
            }
        except ContenderFailed as error:
            found = {"exact": False, "error": shortened(error)}
        finally:
            for life in lives:
                life.kill()
    results.add(**row, **found)


def killed(
    run: Run, lives: list[ContenderProcess], means: Means, instant_s: float
) -> dict[str, Any]:
    """Raises ContenderFailed: it did not start, or did not come back."""
    run.first_after(lives[0], 0, START_TIMEOUT_MS)
    if means.name == STANDBY:
        lives[0].await_line("stands by", START_TIMEOUT_MS)
        time.sleep(STANDBY_WARM_S)
    time.sleep(WARM_S + instant_s)
    killed_us = time.time_ns() // 1000
    if means.name == RESTART:
        lives[0].kill()
        lives.append(run.start())
    else:
        kill_tree(int((run.folder / "pid").read_text()))
    seen_us = run.first_after(lives[-1], killed_us, RECOVERY_TIMEOUT_MS)
    return {"recovery_s": (seen_us - killed_us) / 1e6}
