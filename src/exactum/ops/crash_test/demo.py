"""``exactum demo``: the crash test of a query, and of the same through Spark's own Kafka sink."""

from __future__ import annotations

import io
import random
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka, broker_jars, spark_kafka_jars
from exactum.ops.crash_test.crash_test import CrashTest, environment
from exactum.ops.crash_test.killing import WAIT_MAX_S, KillMoment, PlannedKill
from exactum.testing.crash_verdict import (
    SEED_VARIABLE,
    CrashRun,
    CrashVerdict,
    OutputNotExact,
    OutputRecord,
)

FOLDER = Path(__file__).parent
CUSTOMERS = 100
PICTURE_COLUMNS = 110
WRITTEN_PART = 0.25
"""A kill in the middle of a write waits until a quarter of a batch is written."""
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich's pictures fetch their font from the internet: the reader's own will do."""


@dataclass(frozen=True)
class Settings:
    """What the command line asks for. ``records`` is how many each query reads; ``picture`` is
    where the last screen goes, if anywhere.
    """

    kills: int
    records: int
    comparison: bool
    seed: int
    keep: bool
    picture: Path | None = None


@dataclass(frozen=True)
class Contender:
    """What tells the two queries apart: each is killed at the moments that hurt it most."""

    name: str
    script: Path
    moments: Sequence[KillMoment]

    def plan(self, kills: int, seed: int, moments: Sequence[KillMoment]) -> list[PlannedKill]:
        """All its own moments in turn. The same seed gives the same plan."""
        dice = random.Random(seed)
        return [
            PlannedKill(
                self.moments[number % len(self.moments)],
                part=WRITTEN_PART,
                wait_s=dice.uniform(0, WAIT_MAX_S),
            )
            for number in range(kills)
        ]


EXACTUM = Contender(
    "exactum",
    FOLDER / "demo_query.py",
    (KillMoment.DECIDED, KillMoment.OUTPUT, KillMoment.RANDOM),
)
SPARK = Contender(
    "Spark's own sink",
    FOLDER / "demo_spark_query.py",
    (KillMoment.OUTPUT, KillMoment.OUTPUT, KillMoment.RANDOM),
)


class Demo:
    """One run of the demo."""

    def __init__(self, settings: Settings, console: Console | None = None) -> None:
        self._settings = settings
        self._console = console or Console(highlight=False)
        self._paper = Console(
            record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True
        )
        self._began_s = time.monotonic()
        self._folder = Path(tempfile.gettempdir(), f"exactum-demo-{secrets.token_hex(4)}")
        self._exact = False

    def run(self) -> bool:
        """Run it and return whether exactum's output is exact.

        Raises:
            ExactumError: something could not be started, or ended by itself.
        """
        settings = self._settings
        contenders = [EXACTUM, SPARK] if settings.comparison else [EXACTUM]
        with ExitStack() as ending:
            self._folder.mkdir(mode=0o700)
            ending.push(self._dispose)
            self.say(f"seed {settings.seed}, work folder {self._folder}")
            broker_jars()  # they show their own progress, once for each machine
            spark_kafka_jars()
            self.say("starting the broker")
            # It lives for little more than a minute: code that is compiled once, and quickly.
            kafka = LocalKafka(data_dir=self._folder / "kafka", jvm_options=SMALL_OPTIONS)
            ending.callback(kafka.stop)
            if not settings.keep:
                ending.callback(kafka.kill)  # nobody needs its data any more, so it is killed
            kafka.start()
            verdicts = [self._played(contender, kafka) for contender in contenders]
            self._exact = verdicts[0].exact
        self.show(contenders, verdicts)
        if settings.picture is not None:
            settings.picture.write_text(self.picture())
        return self._exact

    def _played(self, contender: Contender, kafka: LocalKafka) -> CrashVerdict:
        def say(text: str) -> None:
            # The whole verdict is in the table, and the seed is that of the command.
            if "\n" not in text and SEED_VARIABLE not in text:
                self.say(f"{contender.name}: {text}")

        def arguments(run: CrashRun) -> Sequence[str]:
            return (run.bootstrap_servers, run.input, run.output, run.checkpoint)

        self.say(f"{contender.name}: starting; started again after each kill")
        test = CrashTest(kafka, self._folder, plan=contender.plan, say=say)
        with closing(test):
            try:
                return test(
                    contender.script,
                    arguments,
                    map(order, range(self._settings.records)),
                    expected=lambda orders: map(shouted, orders),
                    environment=lambda run: self._temporary(),
                    kills=self._settings.kills,
                    seed=self._settings.seed,
                )
            except OutputNotExact as error:
                return error.verdict

    def _temporary(self) -> Mapping[str, str]:
        """Variables by which temporary files lie in the work folder: who is killed removes none."""
        below = self._folder / "tmp"
        below.mkdir(exist_ok=True)
        options = f'{environment()["SPARK_SUBMIT_OPTS"]} "-Djava.io.tmpdir={below}"'
        return {"TMPDIR": str(below), "SPARK_LOCAL_DIRS": str(below), "SPARK_SUBMIT_OPTS": options}

    def _dispose(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the work folder, unless it is wanted or shows why the demo failed."""
        failed = not self._exact and kind is not KeyboardInterrupt
        if self._settings.keep or (failed and any(self._folder.rglob("*.log"))):
            self.say(f"kept: {self._folder}")
        else:
            shutil.rmtree(self._folder)

    # ---- what a person sees ------------------------------------------------------------------

    def say(self, text: str, style: str = "") -> None:
        """One line with the time before it."""
        line = Text(f"[{time.monotonic() - self._began_s:3.0f} s] {text}", style)
        self._console.print(line, soft_wrap=True)  # a line of a pipe stays one line
        self._console.file.flush()
        self._paper.print(line)

    def show(self, contenders: Sequence[Contender], verdicts: Sequence[CrashVerdict]) -> None:
        """A table of what came out, and a verdict on each."""
        table = Table("", *(each.name for each in contenders))
        rows = {
            "driver killed": [f"{len(each.kills)}: {', '.join(each.kills)}" for each in verdicts],
            "records expected": [f"{each.expected:,}" for each in verdicts],
            "records, as a reader sees it": [f"{each.found:,}" for each in verdicts],
            "lost": [f"{len(each.difference.lost):,}" for each in verdicts],
            "doubled": [f"{each.difference.doubles:,}" for each in verdicts],
            "hidden by open transactions": [f"{each.hidden:,}" for each in verdicts],
        }
        for label, cells in rows.items():
            table.add_row(label, *cells)
        for paper in (self._console, self._paper):
            paper.print(table)
        for contender, verdict in zip(contenders, verdicts, strict=True):
            word = "exact" if verdict.exact else "NOT exact"
            style = "bold green" if verdict.exact else "bold red"
            self.say(f"VERDICT {contender.name}: {word} ({verdict.difference})", style)
        if any(verdict.exact for verdict in verdicts[1:]):
            self.say(
                f"{SPARK.name} doubled nothing this time: only a kill between a write and the end "
                "of its micro-batch makes it do so. Try another --seed."
            )

    def picture(self) -> str:
        """All of it as SVG."""
        return FONTS.sub("", self._paper.export_svg(title="make demo", unique_id="demo"))


def order(number: int) -> OutputRecord:
    """What the queries read. Its key is its customer."""
    customer = f"{number % CUSTOMERS:02d}"
    return OutputRecord(customer, f"order {number} of customer {customer}")


def shouted(record: OutputRecord) -> OutputRecord:
    """What they make of it."""
    return OutputRecord(record.key, str(record.value).upper())
