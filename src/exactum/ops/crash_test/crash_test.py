"""Kill and compare: runs a user's script, kills it, and compares what a reader finds at rest."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exactum.errors import SettingRefused
from exactum.ops.crash_test.job import Job
from exactum.ops.crash_test.killing import SLICES, Killing
from exactum.ops.crash_test.plan import CrashMoment, plan_crashes
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
    """

    def __init__(self, kafka: LocalKafka, folder: Path) -> None:
        self._topics = LocalTopics(kafka)
        self._folder = folder

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
        print(f"crash test of {script}: the same kills again with {SEED_VARIABLE}={seed}")
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

        seen = [m for m in CrashMoment if read is None or m is not CrashMoment.OUTPUT]
        plan = plan_crashes(kills, seed, seen)
        killed = job("killed")
        try:
            killing = Killing(killed, self._topics, given, plan)
            killing.run()
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
            kills=tuple(killing.kills),
            expected=len(wanted),
            found=len(found),
            difference=OutputDifference.of(wanted, found),
            hidden=self._topics.hidden(killed.run.output) if read is None else 0,
            log=str(killed.log_file),
        )
        if not verdict.exact:
            raise OutputNotExact(verdict)
        print(verdict)
        return verdict

    def _undisturbed(
        self,
        job: Callable[[str], Job],
        rows: Callable[[CrashRun], Sequence[Hashable]],
        timeout_s: float,
    ) -> Sequence[Hashable]:
        control = job("undisturbed")
        try:
            control.start()
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
