"""What a planted fault is, and the rows of docs/guarantees.md that faults break."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """``row``: the first words of the row of docs/guarantees.md that it breaks. ``file``: below
    src/exactum. ``tests``: what of ``make test`` can see it, cheapest first; of a matrix over all
    targets with ``-k`` and the kinds that can. ``hangs``: it shows by a test that does not end.
    """

    name: str
    row: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    hangs: bool = False

    def plant(self, source: str) -> str:
        """The source with the fault in it.

        Raises:
            ValueError: the text does not stand there once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: its text stands {source.count(self.old)} times in {self.file}"
            )
        return source.replace(self.old, self.new)


DRIVER = "no row is lost or doubled when the driver dies"
TASK = "no row of a failed, retried or speculative task"
NEWER = "of two drivers on one checkpoint the newer wins"
FROZEN = "a process that was only frozen cannot harm its standby's output"
LATE = "a late task holds no reader back"
POWER = "a power cut takes nothing that a recorded decision needs"
ANOTHER = "a commit cannot hit another transaction"
OTHERS = "nobody else's transactions are touched"
UNKNOWN = "an unknown outcome is never taken for success"
ALL_ROWS = "every row that a task sent is there"
TIMED_OUT = "a decided transaction that timed out is not lost"
ORDER = "order"
FORMER = "what a removed or renamed sink left open is found"
FORK = "a query and its fork do not touch each other's transactions"
OTHER_BATCH = "a decision is never taken for that of another batch"
RECREATED = "a recreated topic is not read as the old one"
GROUP = "a consumer group is never ahead of the sinks"
BAD_RECORD = "no bad record disappears"
AVRO = "an Avro value is never read as another type, unit or scale"
AS_IT_WAS = "a row arrives as it was, or is put aside"
LOADED = "a batch load is there once by its id, with the rows it had"
NOT_WRITTEN = "no batch counts as done that was not written"
STATE = "state agrees with the output"
LOST_STATE = "where that state is lost, another result is not taken for the batch"
LOST = "a lost decision is not taken for one never made"
OLD_RUN = "an old run cannot decide a batch that is long done"
STORE = "fencing holds in an object store"
METADATA = "a checkpoint with another query's `metadata` is refused"
