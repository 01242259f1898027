"""Kill and compare: runs a user's script, kills it, and compares what a reader finds at rest."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from exactum.errors import ExactumError, SettingRefused
from exactum.java.program import SMALL_OPTIONS
from exactum.local.own_process import SUCCESS, OwnProcess
from exactum.ops.crash_test.killing import (
    Killing,
    KillMoment,
    PlannedKill,
    Shown,
    plan_kills,
)
from exactum.ops.crash_test.topics import PARTITIONS, Given, LocalTopics
from exactum.testing.crash_verdict import (
    SEED_VARIABLE,
    CrashRun,
    CrashVerdict,
    OutputDifference,
    OutputNotExact,
    OutputRecord,
)

if TYPE_CHECKING:
    from exactum.local import LocalKafka

KILLS = 4
TIMEOUT_S = 300.0
SEEDS = 10**6
SLICES = 6
"""Parts of the input for each kill: a job that has nothing to do is given the next one."""
QUIET_S = 0.5
BATCH_TIMEOUT_S = 60.0
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
REST_S = 0.5
"""How long the output has to stand still before the job counts as drained."""
LOG_LINES_SHOWN = 15
PACKAGE = Path(__file__).resolve().parents[3]
AIMED_TRIES = 10
"""An aimed kill that comes too late lets the job go on, so often."""

Rows = Iterable[Hashable]


def all_rows(rows: Sequence[Hashable]) -> Rows:
    """Every row, as often as it is there."""
    return rows


class CrashTest:
    """Kills a job at random moments, and compares its output with what it has to be.

    Call it as a function. The fixture `exactum_crash_test` gives one.

    Args:
        kafka: a running cluster for the topics.
        folder: takes checkpoints and logs.
        plan: makes the plan of kills, of their number, a seed and the moments that there are.
        say: takes what is done, a line at a time.
    """

    def __init__(
        self,
        kafka: LocalKafka,
        folder: Path,
        *,
        plan: Callable[[int, int, Sequence[KillMoment]], Sequence[PlannedKill]] = plan_kills,
        say: Callable[[str], None] = print,
    ) -> None:
        self._topics = LocalTopics(kafka)
        self._folder = folder
        self._plan = plan
        self._say = say

    def close(self) -> None:
        """Let go of the connections to the cluster."""
        self._topics.close()

    def __call__(
        self,
        script: str | os.PathLike[str],
        arguments: Callable[[CrashRun], Sequence[str]],
        records: Iterable[Given],
        *,
        expected: Callable[[Sequence[OutputRecord]], Rows] | None = None,
        read: Callable[[CrashRun], Rows] | None = None,
        compare: Callable[[Sequence[Hashable]], Rows] = all_rows,
        environment: Callable[[CrashRun], Mapping[str, str]] | None = None,
        kills: int = KILLS,
        seed: int | None = None,
        partitions: int = PARTITIONS,
        timeout_s: float = TIMEOUT_S,
    ) -> CrashVerdict:
        """Run ``script`` in a process of its own, and SIGKILL it with everything it started.

        It is started again after each kill, until it has read all of its input. That is so when it
        ends with status 0, or when its checkpoint shows it.

        Args:
            script: the path of a Python program that starts one query.
            arguments: gives the arguments of the script. It is called once for each run, before the
                first start. That is the place to make a table.
            records: the input, pairs of key and value: text, bytes or None. At least six for each
                kill and six for the end.
            expected: gives the rows that must be there, from the input. By default the script runs
                once more, over the same input into another output, and nobody kills it.
            read: gives the rows that are there, as hashable values, for outputs that are no topic.
                By default the records of the output topic, read with ``read_committed``.
            compare: gives the part of the rows that is compared, of both sides. By default all of
                them, as often as they are there. ``exactum.testing.latest_by_key`` is another.
            environment: gives variables for the script, besides those of this process.
            kills: how many, at least one.
            seed: of the kills. Default: the variable ``EXACTUM_CRASH_SEED``, or a random one. It is
                printed.
            partitions: of both topics.
            timeout_s: how long the script may take for its input once nobody kills it any more.

        Returns:
            The verdict, which is exact.

        Raises:
            OutputNotExact: rows were lost, doubled or altered.
            SettingRefused: no kills, too few records, or nothing to compare.
            ExactumError: the script failed by itself, did no work, or ended before it was killed.
        """
        given = [OutputRecord(key, value) for key, value in records]
        _check(Path(script), given, kills)
        seed = _seed() if seed is None else seed
        again = f"the same kills again with {SEED_VARIABLE}={seed}"
        self._say(f"crash test of {Path(script).name}: {again}")
        folder = self._folder / f"crash-test-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        source = self._topics.create("input", partitions=partitions)

        def job(name: str) -> Job:
            output = f"output_{name}_{secrets.token_hex(4)}"
            if read is None:
                output = self._topics.create(f"output_{name}", partitions=partitions)
            run = CrashRun(
                name,
                self._topics.bootstrap_servers,
                source,
                output,
                str(folder / f"checkpoint-{name}"),
            )
            return Job(
                run,
                [str(script), *arguments(run)],
                self._topics,
                folder / f"{name}.log",
                variables=environment(run) if environment else {},
                output_is_topic=read is None,
            )

        def rows(run: CrashRun) -> Sequence[Hashable]:
            return self._topics.read(run.output) if read is None else list(read(run))

        moments = [KillMoment.BATCH, KillMoment.DONE, KillMoment.RANDOM]
        moments = [KillMoment.OUTPUT, *moments] if read is None else moments
        killed = job("killed")
        try:
            met = _kill_all(killed, given, self._plan(kills, seed, moments), self._say)
            killed.drain(timeout_s)
        finally:
            killed.kill()
        wanted = list(expected(given) if expected else self._undisturbed(job, rows, timeout_s))
        if not wanted:
            raise SettingRefused(
                "CRASH_TEST",
                f"the crash test of {script} expects no rows: any job that writes nothing would "
                "pass. Look at the records, and at what the script makes of them.",
            )
        unpicked, wanted = len(wanted), list(compare(wanted))
        if not wanted:
            raise SettingRefused(
                "CRASH_TEST",
                f"the crash test of {script} compares no rows: compare= leaves none of the "
                f"{unpicked:,} rows that are expected, so any job would pass.",
            )
        found = list(compare(rows(killed.run)))
        verdict = CrashVerdict(
            job=str(script),
            seed=seed,
            kills=tuple(met),
            expected=len(wanted),
            found=len(found),
            difference=OutputDifference.of(wanted, found),
            hidden=self._topics.hidden(killed.run.output) if read is None else 0,
            log=str(killed.log_file),
        )
        if not verdict.exact:
            raise OutputNotExact(verdict)
        self._say(str(verdict))
        return verdict

    def _undisturbed(
        self,
        job: Callable[[str], Job],
        rows: Callable[[CrashRun], Sequence[Hashable]],
        timeout_s: float,
    ) -> Sequence[Hashable]:
        control = job("undisturbed")
        try:
            control.begin()
            control.drain(timeout_s)
        finally:
            control.kill()
        return rows(control.run)


def _check(script: Path, records: Sequence[OutputRecord], kills: int) -> None:
    needed = SLICES * (kills + 1)
    if not script.is_file():
        raise SettingRefused("CRASH_TEST", f"there is no script {script} in {Path.cwd()}.")
    if kills < 1:
        raise SettingRefused("CRASH_TEST", f"a crash test makes at least one kill, not {kills}.")
    if len(records) < needed:
        raise SettingRefused(
            "CRASH_TEST",
            f"{kills} kills need at least {needed} records, and there are {len(records)}: each "
            "life of the job needs something to do.",
        )


def _seed() -> int:
    given = os.environ.get(SEED_VARIABLE)
    return int(given) if given else secrets.randbelow(SEEDS)


# ---- one run ---------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Variables with which a child has this exactum and this interpreter, wherever its folder is.

    Its JVM compiles fast rather than well: such drivers live for seconds, and it nearly halves the
    CPU time of a start (18 s to 10 s, measured).
    """
    path = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = [*filter(None, [os.environ.get("SPARK_SUBMIT_OPTS")]), *SMALL_OPTIONS]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }


class Job(OwnProcess):
    """One run of the script under test. ``output_is_topic``: whether ``run.output`` is a topic."""

    def __init__(
        self,
        run: CrashRun,
        command: Sequence[str],
        topics: LocalTopics,
        log_file: Path,
        *,
        variables: Mapping[str, str],
        output_is_topic: bool,
    ) -> None:
        super().__init__(log_file, folder=Path.cwd(), variables={**environment(), **variables})
        self.run = run
        self._command = [sys.executable, *command]
        self.topics = topics

        def output_end() -> int:
            return sum(topics.ends(run.output).values()) if output_is_topic else 0

        self.shown = Shown(Path(run.checkpoint), output_end)

    def begin(self) -> None:
        """Start it. Idempotent while it runs."""
        self.start(self._command)

    def is_done(self) -> bool:
        """Whether it has ended with status 0.

        Raises:
            ExactumError: it ended in another way, though nobody killed it.
        """
        how = self.ended()
        if how not in (None, SUCCESS):
            raise self.failure(f"ended by itself ({how})")
        return how is not None

    def failure(self, what: str) -> ExactumError:
        """The error that says ``what`` became of it, with the end of its log."""
        return ExactumError(
            f"the driver of {Path(self._command[1]).name} {what}. The last lines of "
            f"{self.log_file}:\n{textwrap.indent(self.log_tail(LOG_LINES_SHOWN), '    ')}"
        )

    def drain(self, timeout_s: float) -> None:
        """Return when it has read all input, and has ended or was stopped.

        Raises:
            ExactumError: it ended with an error, or did not come to the end in ``timeout_s``.
        """
        ends = self.topics.ends(self.run.input)
        deadline = time.monotonic() + timeout_s
        while not self.is_done():
            read = self.shown.read_up_to()
            if all(read.get((self.run.input, part), 0) >= end for part, end in ends.items()):
                self._await_rest(deadline)
                self.stop(STOP_TIMEOUT_S)
                return
            if time.monotonic() > deadline:
                raise self.failure(
                    f"did not read all of its input within {timeout_s:.0f} s (timeout_s). A job "
                    "has come to the end when it ends with status 0, or when the checkpoint at "
                    "run.checkpoint shows it"
                )
            time.sleep(POLL_S)
        self.kill()

    def _await_rest(self, deadline: float) -> None:
        """Wait until nothing moves any more: what is on its way must not be lost by the stop."""
        last, since = self.shown.progress(), time.monotonic()
        while time.monotonic() < min(since + REST_S, deadline):
            time.sleep(POLL_S)
            if (now := self.shown.progress()) != last:
                last, since = now, time.monotonic()


def _kill_all(
    job: Job,
    records: Sequence[OutputRecord],
    plan: Sequence[PlannedKill],
    say: Callable[[str], None],
) -> list[str]:
    """Make all kills, give what is left of the input, and start the job once more. Each life gets a
    part of the input, so that every kill meets work. Returns what each kill met.

    Raises:
        ExactumError: the job fails by itself, does not begin to work, or ends before a kill.
    """
    number = SLICES * (len(plan) + 1)
    ends = [len(records) * part // number for part in range(number + 1)]
    slices = deque(records[start:end] for start, end in itertools.pairwise(ends))
    spare = number  # slices that are kept for the later kills and for the end

    def feed() -> bool:
        if len(slices) <= spare:
            return False
        job.topics.produce(job.run.input, slices.popleft())
        return True

    killing = Killing(
        job.shown, job.is_done, quiet_s=QUIET_S, batch_timeout_s=BATCH_TIMEOUT_S, feed=feed
    )
    found: list[str] = []
    for count, planned in enumerate(plan, 1):
        spare -= SLICES
        kill = planned
        feed()
        while (met := _life(job, killing, kill, say)) is None:
            if not feed():
                raise job.failure(
                    f"ended by itself before kill {count} of {len(plan)}. A test that kills "
                    "nothing shows nothing: give it more records, or smaller micro-batches "
                    "(maxOffsetsPerTrigger)"
                )
            # Its lives are brief: take the first that comes.
            kill = replace(kill, sighting=1, wait_s=0.0)
        found.append(f"{met.value}, in life {job.starts}")
    job.topics.produce(job.run.input, [record for part in slices for record in part])
    _begin(job, killing, say)
    return found


def _begin(job: Job, killing: Killing, say: Callable[[str], None]) -> bool:
    """Start the job, or the life after a kill, and wait until it works. False if it has ended by
    itself before.
    """
    before, began_s = job.shown.progress(), time.monotonic()
    job.begin()
    works = killing.works(before, START_TIMEOUT_S)
    if works is None:
        raise job.failure(
            f"did no work within {START_TIMEOUT_S:.0f} s of its start: neither its output nor its "
            "checkpoint moved. Does the script write to run.output, and keep its checkpoint at "
            "run.checkpoint?"
        )
    if works:
        since = "its start" if job.starts == 1 else "the kill"
        say(f"life {job.starts} works, {time.monotonic() - began_s:.1f} s after {since}")
    return works


def _life(
    job: Job, killing: Killing, kill: PlannedKill, say: Callable[[str], None]
) -> KillMoment | None:
    """Start the job and kill it, at what was met. None if it has ended by itself before."""
    met: KillMoment | None = None
    tries = killed = 0
    if _begin(job, killing, say):
        while not killed:
            tries += 1
            job.note_processes()
            met = killing.met(kill)
            if met is None:
                break
            in_time = partial(_is_in_time, job, killing, replace(kill, moment=met))
            killed = job.kill(in_time if tries < AIMED_TRIES else lambda: True)
    if met is None:
        job.kill()  # what is left of one that has ended
    else:
        say(f"SIGKILL {met.value}, {killed} processes")
    return met


def _is_in_time(job: Job, killing: Killing, kill: PlannedKill) -> bool:
    """Whether the frozen job is still where the kill was aimed at. What aims at no part of it is
    always right.
    """
    if kill.moment is KillMoment.DECIDED:
        return job.topics.hidden(job.run.output) > 0
    aims = kill.moment is KillMoment.OUTPUT and kill.part > 0
    return not aims or job.shown.done() == killing.pace.done
