"""The outcome of a crash test of a user's job, and the error that carries it."""

from __future__ import annotations

from dataclasses import dataclass

from exactum.testing.output import OutputDifference

SEED_VARIABLE = "EXACTUM_CRASH_SEED"


@dataclass(frozen=True)
class CrashRun:
    """One run of the job under test: what its script has to be told.

    Attributes:
        name: ``killed``, or ``undisturbed`` for the run to compare with.
        bootstrap_servers: of the Kafka cluster with both topics.
        input: the topic to read. Both runs read the same one.
        output: the topic to write, which exists. With ``read`` it is a free name for a table.
        checkpoint: the folder for the query's checkpoint. It does not exist yet.
    """

    name: str
    bootstrap_servers: str
    input: str
    output: str
    checkpoint: str


@dataclass(frozen=True)
class CrashVerdict:
    """What a reader found at rest, after the kills.

    Attributes:
        job: the name of the script.
        seed: of the kills.
        kills: what each kill met, in order.
        expected: how many rows were expected.
        found: how many rows were read.
        difference: what is wrong with them.
        hidden: offsets of the output topic that open transactions hide from read_committed readers.
        log: the file with everything the killed run printed.
    """

    job: str
    seed: int
    kills: tuple[str, ...]
    expected: int
    found: int
    difference: OutputDifference
    hidden: int
    log: str

    @property
    def exact(self) -> bool:
        """Whether every expected row is there as often as expected, and nothing else."""
        return not self.difference and self.hidden == 0

    def __str__(self) -> str:
        word = "exact" if self.exact else "NOT exact"
        plural = "" if len(self.kills) == 1 else "s"
        lines = [
            f"{self.job} is {word} after {len(self.kills)} SIGKILL{plural}: {self.difference} "
            f"({self.expected:,} rows expected, {self.found:,} found)"
        ]
        if self.hidden:
            lines.append(f"{self.hidden:,} offsets of the output are hidden by open transactions")
        lines += self.difference.examples()
        lines += [f"kill {number}: {kill}" for number, kill in enumerate(self.kills, 1)]
        lines += [
            f"the same kills again: {SEED_VARIABLE}={self.seed}",
            f"log of the job: {self.log}",
        ]
        return "\n".join(lines)


class OutputNotExact(AssertionError):
    """The job under test lost, doubled or altered rows. ``verdict`` has all of them."""

    def __init__(self, verdict: CrashVerdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict

    def __reduce__(self) -> tuple[type[OutputNotExact], tuple[CrashVerdict]]:
        return type(self), (self.verdict,)
