"""The demo from its first second to the verdict, and the end of everything that it started."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka, broker_jars, spark_kafka_jars
from exactum.ops.crash_test.topics import LocalTopics
from exactum.ops.demo.broker_view import BrokerView
from exactum.ops.demo.producer import produce
from exactum.ops.demo.screen import DemoNumbers, Screen
from exactum.ops.demo.subject import EXACTUM, SPARK, Subject
from exactum.ops.demo.verdict import DemoVerdict

PARTITIONS = 2
ORDERS = "orders"
WATCH_INTERVAL_S = 0.25
SWITCH_INTERVAL_S = 0.0005
"""An aimed kill has a few milliseconds: it cannot wait 5 ms, Python's default, for another
thread's turn to end.
"""
REST_S = 2.5
"""Two triggers of the queries, and a half: nothing has changed for so long when they rest."""
STOP_TIMEOUT_S = 40.0
"""Until the broker has acknowledged what was produced last."""
DRAIN_TIMEOUT_S = 120.0
OVERTIME_MAX_S = 180.0
"""On a slow machine orders flow until all kills are made, at most so much longer than asked."""


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
class Stage:
    """Everything that runs. ``tasks`` are threads of ``pool``, whose errors ``Show`` passes on."""

    broker: BrokerView
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
        self._begin_chaos, self._stop = threading.Event(), threading.Event()
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
        servers, settings = self._kafka.bootstrap_servers, self._settings
        broker = BrokerView(servers, PARTITIONS)
        ending.callback(broker.close)
        self._subjects = [
            Subject(
                contender,
                broker,
                servers,
                folder=self._folder,
                kills=settings.kills,
                seconds=settings.seconds,
                seed=settings.seed + number,
                say=self._screen.say,
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
            tasks.append(pool.submit(LocalTopics(self._kafka).follow, *follow))
            tasks.append(pool.submit(subject.chaos.run, self._begin_chaos, self._stop))
        return Stage(broker, self._subjects, tasks, pool)

    def _await_work(self, stage: Stage) -> Future[int]:
        """Start the producer when the first query is there, so that it begins with no backlog and
        the other one with a small one.

        These waits are bounded by the chaos, which fails when a driver does not work in time.
        """
        while not any(subject.checkpoint.started for subject in stage.subjects):
            self._watch(stage)
        self._enter("starting the producer")
        servers, rate = self._kafka.bootstrap_servers, self._settings.records_per_second
        production = stage.pool.submit(produce, servers, ORDERS, rate, self._produced_all)
        stage.tasks.append(production)
        while not all(subject.chaos.state == "working" for subject in stage.subjects):
            self._watch(stage)
        return production

    def _let_flow(self, stage: Stage) -> None:
        """Let orders flow until the time is over and all kills are made."""
        kills = self._settings.kills
        self._enter(f"orders flow, and each driver gets {kills} SIGKILL{'s' * (kills != 1)}")
        self._begin_chaos.set()
        begun = time.monotonic()
        while (past := time.monotonic() - begun) < self._settings.seconds + OVERTIME_MAX_S:
            if past >= self._settings.seconds and all(
                subject.chaos.done for subject in stage.subjects
            ):
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
        topics = LocalTopics(self._kafka)
        return [
            DemoVerdict.of(
                subject.name,
                kills=subject.chaos.kills,
                produced=self._produced,
                fresh=topics.read_partitions(subject.topic),
                live=subject.seen,
                hidden=stage.broker.hidden(subject.topic),
            )
            for subject in stage.subjects
        ]

    def _watch(self, stage: Stage) -> None:
        """Wait a moment, look at the broker, pass on what failed in a thread."""
        time.sleep(WATCH_INTERVAL_S)
        for task in stage.tasks:
            if task.done():
                task.result()
        self._produced = max(self._produced, stage.broker.end(ORDERS))
        for subject in stage.subjects:
            if subject.open_transactions is not None:
                subject.open_transactions = stage.broker.open_transactions()
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
