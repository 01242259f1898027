"""The demo from its first second to the verdict, and the end of everything that it started.

producer -> "orders" -+-> demo_query.py       (exactum)     -> "shouted"       -+-> reader -> seen
                      +-> demo_spark_query.py (Spark's own) -> "shouted_spark" -+      -> verdict
       both drivers get SIGKILLs; exactum's has a standby that takes over, Spark's is started
       again
"""

from __future__ import annotations

import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka, broker_jars, spark_kafka_jars
from exactum.ops.crash_test.demo_orders import DemoVerdict, RowsSeen, produce
from exactum.ops.crash_test.demo_screen import DemoNumbers, QueryNumbers, Screen
from exactum.ops.crash_test.kept_running import KeptRunning, StandbyBeside, StartedAgain
from exactum.ops.crash_test.killing import (
    WAIT_MAX_S,
    Killing,
    KillMoment,
    PlannedKill,
    Shown,
)
from exactum.ops.crash_test.topics import TIMEOUT_S, LocalTopics

FOLDER = Path(__file__).parent

PARTITIONS = 2
ORDERS = "orders"
WATCH_INTERVAL_S = 0.25
SWITCH_INTERVAL_S = 0.0005
"""An aimed kill has a few milliseconds: it cannot wait 5 ms, Python's default, for another
thread's turn to end.
"""
REST_S = 2.5
"""Two triggers of the queries, and a half: nothing has changed for so long when they rest."""
STOP_TIMEOUT_S = TIMEOUT_S + 10
"""Until the broker has acknowledged what was produced last."""
DRAIN_TIMEOUT_S = 120.0
OVERTIME_MAX_S = 180.0
"""On a slow machine orders flow until all kills are made, at most so much longer than asked."""
MOMENT_TIMEOUT_S = 8.0
WORK_TIMEOUT_S = 240.0
CHECK_INTERVAL_S = 0.05
TRIES_MAX = 10
IN_A_WRITE = "in the middle of a write"
WRITTEN_PART = 0.25
"""A kill in the middle of a write waits until a quarter of a batch is written."""
WORK_BATCHES_MIN = 3
"""How many batches a driver finishes at least between two kills."""


@dataclass(frozen=True)
class Settings:
    """What the command line asks for. ``seconds`` is how long orders flow once the drivers work;
    ``picture`` is where the last screen goes, if anywhere.
    """

    seconds: float
    kills: int
    records_per_second: float
    comparison: bool
    seed: int
    keep: bool
    picture: Path | None = None


@dataclass(frozen=True)
class Contender:
    """What tells the two queries apart: each is killed equally often, at the moments that hurt it
    most.

    The ``lead`` of their kills differs: while one starts again, the other's first standby gets
    warm, and that is waited for.
    """

    name: str
    script: Path
    kept: Callable[[str, Path, Sequence[str], Path], KeptRunning]
    topic: str
    moments: Sequence[KillMoment]
    transactional: bool
    lead: float

    def plan(self, kills: int, seconds: float, seed: int) -> list[tuple[float, PlannedKill]]:
        """``kills`` kills spread over ``seconds``, each with the second from which on it is due:
        when the part ``lead`` of its share of the time is over, or up to a fifth of it later. The
        same seed gives the same plan.
        """
        dice = random.Random(seed)
        gap = seconds / max(kills, 1)
        return [
            (
                (number + self.lead + dice.uniform(0, 0.2)) * gap,
                PlannedKill(
                    self.moments[number % len(self.moments)],
                    part=WRITTEN_PART,
                    wait_s=dice.uniform(0, WAIT_MAX_S),
                ),
            )
            for number in range(kills)
        ]


EXACTUM = Contender(
    "exactum",
    FOLDER / "demo_query.py",
    StandbyBeside,
    "shouted",
    (KillMoment.DECIDED, KillMoment.OUTPUT, KillMoment.RANDOM),
    transactional=True,
    lead=0.55,
)
SPARK = Contender(
    "Spark's own sink",
    FOLDER / "demo_spark_query.py",
    StartedAgain,
    "shouted_spark",
    (KillMoment.OUTPUT, KillMoment.OUTPUT, KillMoment.RANDOM),
    transactional=False,
    lead=0.05,
)


class Subject:
    """A contender at work: its driver, its output, its kills. ``run`` belongs to a thread of its
    own. What it counts has one writer, and everybody may read it.
    """

    def __init__(
        self,
        contender: Contender,
        topics: LocalTopics,
        folder: Path,
        kills: Sequence[tuple[float, PlannedKill]],
        say: Callable[[str], None],
    ) -> None:
        self.name, self.topic = contender.name, contender.topic
        self.seen = RowsSeen()
        self.open_transactions: int | None = 0 if contender.transactional else None
        self.shown = Shown(folder / self.topic, self._end)
        self.driver = contender.kept(
            self.name,
            contender.script,
            (topics.bootstrap_servers, str(self.shown.checkpoint)),
            folder / f"{self.topic}.log",
        )
        self.kills = 0
        self.recoveries_s: tuple[float, ...] = ()
        """From each kill to the first batch that was finished after it. Replaced, never changed."""
        self.state = "waiting"
        self._topics = topics
        self._plan = kills
        self._say = say
        self._stop = threading.Event()
        self._killing = Killing(
            self.shown, self._is_over, quiet_s=MOMENT_TIMEOUT_S, batch_timeout_s=MOMENT_TIMEOUT_S
        )

    @property
    def done(self) -> bool:
        """Whether all kills are made and the driver works again."""
        return self.kills == len(self._plan) and self.state == "working"

    def numbers(self, produced: int) -> QueryNumbers:
        """The numbers of this moment."""
        return QueryNumbers(
            name=self.name,
            way=self.driver.way,
            state=self.state,
            committed=self.seen.committed,
            duplicates=self.seen.committed - self.seen.distinct,
            missing=max(0, produced - self.seen.distinct),
            open_transactions=self.open_transactions,
            batches=self.shown.done() + 1,
            kills=self.kills,
            recoveries_s=self.recoveries_s,
        )

    def run(self, begin: threading.Event, stop: threading.Event) -> None:
        """Start the driver; from ``begin`` on kill and restart it as planned; then watch it until
        ``stop``.

        Raises:
            ExactumError: the driver ended by itself, or does not begin to work.
        """
        self._stop = stop
        self._start()
        while not begin.is_set() and not self._is_over():
            time.sleep(CHECK_INTERVAL_S)
        begun = time.monotonic()
        for due_s, kill in self._plan:
            self._await_turn(begun + due_s)
            killed_s = self._strike(kill)
            if stop.is_set():
                return
            self._start(killed_s)
        while not self._is_over():
            time.sleep(CHECK_INTERVAL_S)

    def _is_over(self) -> bool:
        self.driver.check()
        return self._stop.is_set()

    def _start(self, killed_s: float | None = None) -> None:
        """Start the driver, or what takes its place, and wait until a batch is finished."""
        began, before = time.monotonic(), self.shown.progress()
        self.driver.start()
        self.state = "starting"
        works = self._killing.works(before, WORK_TIMEOUT_S, finishes=True)
        if works is None:
            raise self.driver.failure(f"finished no batch within {WORK_TIMEOUT_S:.0f} s")
        if not works:
            return
        if killed_s is None:
            outcome = f"works, {time.monotonic() - began:.1f} s after its start"
        else:
            took_s = time.monotonic() - killed_s
            self.recoveries_s = (*self.recoveries_s, took_s)
            outcome = f"{self.driver.comes_back}, {took_s:.1f} s after the kill"
        self.state = "working"
        self._say(f"{self.name}: {outcome}")

    def _await_turn(self, due: float) -> None:
        """Wait until the kill is due, the driver has worked for a while since its last start, and
        who stands by for it is there.
        """
        enough = self.shown.done() + WORK_BATCHES_MIN - 1
        deadline = time.monotonic() + WORK_TIMEOUT_S
        while not self._is_over() and time.monotonic() < deadline:
            if time.monotonic() >= due and self.driver.is_ready and self.shown.done() >= enough:
                return
            time.sleep(CHECK_INTERVAL_S)

    def _strike(self, kill: PlannedKill) -> float | None:
        """Kill the driver at the moment that is waited for, and return when it did its last work.
        What comes too late lets it go on, but for the last try.
        """
        for left in reversed(range(TRIES_MAX)):
            self.driver.note_processes()
            moment = self._killing.met(kill)
            if moment is None:
                break
            killed_s = self._kill(moment, late_too=left == 0)
            if killed_s is not None:
                return killed_s
        return None

    def _kill(self, moment: KillMoment, *, late_too: bool) -> float | None:
        """Kill the driver, say what that met, and return when it did its last work. None where it
        came too late and let the driver go on.
        """
        met: list[str] = []
        frozen_s: list[float] = []

        def frozen() -> bool:
            frozen_s.append(time.monotonic())
            found, late = self._found(moment)
            moment_met = IN_A_WRITE if moment is KillMoment.OUTPUT else moment.value
            met.extend(("right after a commit" if late else moment_met, found))
            return late_too or not late

        processes = self.driver.kill(frozen)
        if not processes:
            return None
        self.kills += 1
        self.state = "killed"
        self._say(f"{self.name}: SIGKILL {met[0]}, {processes} processes, {met[1]}")
        return frozen_s[0]

    def _found(self, moment: KillMoment) -> tuple[str, bool]:
        """What stands in the topic while the driver is frozen, and whether the kill is a few
        milliseconds late and meets something else than it waited for.
        """
        if self.open_transactions is not None:
            hidden = self._topics.hidden(self.topic)
            found = f"{hidden:,} records in open transactions" if hidden else "no transaction open"
            return found, moment is KillMoment.DECIDED and not hidden
        pace = self._killing.pace
        late = moment is KillMoment.OUTPUT and self.shown.done() > pace.done
        written = 0 if late or moment is not KillMoment.OUTPUT else self._end() - pace.end
        if written:
            return f"{written:,} records of an unfinished batch", late
        return "no record seen of an unfinished batch", late

    def _end(self) -> int:
        return sum(self._topics.ends(self.topic).values())


@dataclass(frozen=True)
class Stage:
    """Everything that runs. ``tasks`` are threads of ``pool``, whose errors ``Show`` passes on."""

    topics: LocalTopics
    subjects: Sequence[Subject]
    tasks: list[Future[Any]]
    pool: ThreadPoolExecutor


class Show:
    """One run of the demo."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(tempfile.gettempdir(), f"exactum-demo-{secrets.token_hex(4)}")
        self._screen = Screen(self._numbers)
        # It lives for little more than a minute: code that is compiled once, and quickly.
        self._kafka = LocalKafka(data_dir=self._folder / "kafka", jvm_options=SMALL_OPTIONS)
        self._begin_kills, self._stop = threading.Event(), threading.Event()
        self._phase = "starting"
        self._produced, self._produced_all = 0, threading.Event()
        self._subjects: Sequence[Subject] = ()
        self._exact = False

    def run(self) -> bool:
        """Run it and return whether exactum's output is exact.

        Raises:
            ExactumError: something could not be started, or ended by itself.
        """
        with ExitStack() as ending:
            self._folder.mkdir(mode=0o700)
            ending.push(self._dispose)
            ending.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._screen.say(f"seed {self._settings.seed}, work folder {self._folder}")
            broker_jars()  # they show their own progress, once for each machine
            spark_kafka_jars()
            with self._screen:
                stage = self._start(ending)
                production = self._await_work(stage)
                self._let_flow(stage)
                self._drain(stage, production)
                verdicts = self._judge(stage)
            for verdict in verdicts:
                self._screen.say(str(verdict), "bold green" if verdict.exact else "bold red")
            for remark in filter(None, (verdict.remark for verdict in verdicts[1:])):
                self._screen.say(remark)
            self._exact = verdicts[0].exact
            if self._settings.picture is not None:
                self._settings.picture.write_text(self._screen.picture())
        return self._exact

    def _start(self, ending: ExitStack) -> Stage:
        """Start the broker, the topics, the producer, the readers, and the drivers; ``ending`` ends
        them.
        """
        self._enter("starting the broker")
        ending.callback(self._kafka.stop)
        if not self._settings.keep:
            ending.callback(self._kafka.kill)  # nobody needs its data any more, so it is killed
        self._kafka.start()
        contenders = [EXACTUM, SPARK] if self._settings.comparison else [EXACTUM]
        for topic in (ORDERS, *(contender.topic for contender in contenders)):
            self._kafka.create_topic(topic, partitions=PARTITIONS)
        self._enter("starting the drivers")
        settings = self._settings
        topics = LocalTopics(self._kafka)
        ending.callback(topics.close)
        self._subjects = [
            Subject(
                contender,
                topics,
                self._folder,
                contender.plan(settings.kills, settings.seconds, settings.seed + number),
                self._screen.say,
            )
            for number, contender in enumerate(contenders)
        ]
        for subject in self._subjects:
            ending.callback(subject.driver.end)
        pool = ThreadPoolExecutor(2 * len(self._subjects) + 1, "exactum-demo")
        ending.callback(pool.shutdown)
        ending.callback(self._stop.set)
        ending.callback(self._produced_all.set)
        tasks: list[Future[Any]] = []
        for subject in self._subjects:
            follow = (subject.topic, subject.seen.add, self._stop)
            tasks.append(pool.submit(topics.follow, *follow))
            tasks.append(pool.submit(subject.run, self._begin_kills, self._stop))
        return Stage(topics, self._subjects, tasks, pool)

    def _await_work(self, stage: Stage) -> Future[int]:
        """Start the producer when the first query is there, so that it begins with no backlog and
        the other one with a small one.

        Each ``Subject`` bounds these waits: it fails where its driver does not work in time.
        """
        while not any(subject.shown.started for subject in stage.subjects):
            self._watch(stage)
        self._enter("starting the producer")
        rate = self._settings.records_per_second
        production = stage.pool.submit(produce, stage.topics, ORDERS, rate, self._produced_all)
        stage.tasks.append(production)
        while not all(subject.state == "working" for subject in stage.subjects):
            self._watch(stage)
        return production

    def _let_flow(self, stage: Stage) -> None:
        """Let orders flow until the time is over and all kills are made."""
        kills = self._settings.kills
        self._enter(f"orders flow, and each driver gets {kills} SIGKILL{'s' * (kills != 1)}")
        self._begin_kills.set()
        begun = time.monotonic()
        while (past := time.monotonic() - begun) < self._settings.seconds + OVERTIME_MAX_S:
            if past >= self._settings.seconds and all(subject.done for subject in stage.subjects):
                return
            self._watch(stage)
        self._screen.say("this machine is slow: not all kills were made")

    def _drain(self, stage: Stage, production: Future[int]) -> None:
        """Stop the production, and let the queries finish and come to rest."""
        self._produced_all.set()
        self._produced = production.result(STOP_TIMEOUT_S)
        self._enter(f"production is over after {self._produced:,} orders, the queries finish")
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        before, changed = self._numbers(), time.monotonic()
        # All orders seen is not the end: a batch may be on its way a second time.
        while time.monotonic() - changed < REST_S or not all(
            query.finished for query in before.queries
        ):
            if time.monotonic() > deadline:
                self._screen.say(f"a query has not finished within {DRAIN_TIMEOUT_S:.0f} s")
                return
            self._watch(stage)
            if (now := self._numbers()) != before:
                before, changed = now, time.monotonic()

    def _judge(self, stage: Stage) -> list[DemoVerdict]:
        self._enter("a new reader counts everything from the beginning")
        return [
            DemoVerdict.of(
                subject.name,
                kills=subject.kills,
                produced=self._produced,
                fresh=stage.topics.read_partitions(subject.topic),
                live=subject.seen,
                hidden=stage.topics.hidden(subject.topic),
            )
            for subject in stage.subjects
        ]

    def _watch(self, stage: Stage) -> None:
        """Wait a moment, look at the broker, pass on what failed in a thread."""
        time.sleep(WATCH_INTERVAL_S)
        for task in stage.tasks:
            if task.done():
                task.result()
        self._produced = max(self._produced, sum(stage.topics.ends(ORDERS).values()))
        for subject in stage.subjects:
            if subject.open_transactions is not None:
                subject.open_transactions = stage.topics.open_transactions()
        self._screen.tick()

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._screen.say(phase)

    def _numbers(self) -> DemoNumbers:
        produced = self._produced
        return DemoNumbers(
            self._phase, produced, [subject.numbers(produced) for subject in self._subjects]
        )

    def _dispose(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the work folder, unless it is wanted or shows why the demo failed."""
        failed = not self._exact and not isinstance(error, KeyboardInterrupt)
        if self._settings.keep or (failed and any(self._folder.glob("*.log"))):
            self._screen.say(f"kept: {self._folder}")
        else:
            shutil.rmtree(self._folder)
