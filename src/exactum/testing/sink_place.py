"""One scenario of ``SinkContract``: a query of its own over the user's sink, its incarnations, and
the oracle.

It counts what has become visible since it began, so scenarios may follow each other on one target.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from exactum.errors import ExactumError
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.ends import Noted
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    Sighting,
    SourceOffsets,
    new_incarnation,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Sink, WriteOrder
from exactum.storage.folder import Folder
from exactum.testing.faults import Around, Crash, interpose, straight
from exactum.testing.memory import MemoryDecisionLog, MemoryStorage, permit_of
from exactum.testing.task_job import Partition, TaskJob

if TYPE_CHECKING:
    from exactum.testing.participant_contract import SinkContract


class SparkStopped(Exception):
    """Spark found that another query had written its batch to the checkpoint."""


EPOCHS = 2
PARTITIONS = 2
CLEANINGS_MAX = 5
"""How many starts a target may need until nothing is open: some show a dead client's transaction
late.
"""


class Opened:
    """A sink opened for one run."""

    def __init__(self, sink: OpenSink, run: QueryRun, participant: str) -> None:
        self.sink = sink
        self.run = run
        self.participant = participant

    def order(self, batch_id: int) -> WriteOrder:
        return WriteOrder(self.run, batch_id, 0, batch_id + 1)


class Scenario:
    """One scenario: a query of its own, its checkpoint and decision log, and what was visible
    before. ``hooks`` are the user's.
    """

    def __init__(self, hooks: SinkContract) -> None:
        self.hooks = hooks
        self.query_id = str(uuid.uuid4())
        self.storage = MemoryStorage()
        hooks.reset()
        self.batches = list(hooks.batches())
        self._done: set[int] = set()  # Spark's commit log
        self._before = self._visible()
        needed = EPOCHS * PARTITIONS
        assert len(self.batches) >= needed, f"batches() must give {needed} record batches or more"
        assert all(b.num_rows for b in self.batches[:needed]), (
            "batches() must give record batches with rows"
        )

    # ---- steps

    @contextmanager
    def opened(
        self,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        *,
        query_id: str = "",
        participant: str = "",
        through: Callable[[Sink], Sink] = lambda sink: sink,
    ) -> Iterator[Opened]:
        """A sink of another process. It is closed at the end, which must leave every transaction as
        it is.
        """
        sink = through(self.hooks.make_sink())
        staging = Folder(self.hooks.staging_folder())
        run = QueryRun(query_id or self.query_id, new_incarnation(), guarantee, staging)
        opened = sink.open(run, participant or sink.name, self.hooks.columns)
        try:
            yield Opened(opened, run, participant or sink.name)
        finally:
            opened.participant.close()

    def partitions(self, batch_id: int) -> list[Partition]:
        """What the tasks of a batch write: one record batch each, an empty one with it; and a task
        without rows.
        """
        mine = (
            self.batches[batch_id * PARTITIONS : (batch_id + 1) * PARTITIONS]
            if batch_id < EPOCHS
            else []
        )
        empty = self.batches[0].slice(0, 0)
        return [*([batch, empty] for batch in mine), [empty]]

    def count(self, batch_id: int) -> int:
        return sum(batch.num_rows for partition in self.partitions(batch_id) for batch in partition)

    def prepare(
        self, one: Opened, partitions: Sequence[Partition]
    ) -> Sequence[PreparedTransaction]:
        return TaskJob(one.sink.writers, partitions)(one.order(0))

    def permit(self, one: Opened, prepared: Sequence[PreparedTransaction]) -> CommitPermit:
        """Verified, recorded and read back from the record's text, as another process would."""
        verified = tuple(one.sink.participant.verify(prepared))
        epoch = Epoch(one.run.query_id, 0)
        record = DecisionRecord(epoch, 0, Decision.COMMIT, one.run.incarnation, verified)
        return permit_of(record)

    def sightings(self, one: Opened, prepared: Sequence[PreparedTransaction]) -> Sequence[Sighting]:
        """What the participant shows of ``prepared``; where it lists nothing, what it would
        show.
        """
        if not self.hooks.lists_open:
            return [
                Sighting(p.participant, p.identity, one.run.incarnation, p.payload)
                for p in prepared
            ]
        mine = {p.identity for p in prepared}
        seen = [s for s in one.sink.participant.list_open() if s.identity in mine]
        assert {s.identity for s in seen} == mine, "list_open() does not show what is prepared"
        assert {s.incarnation for s in seen} == {one.run.incarnation}, (
            "list_open() shows another incarnation"
        )
        return seen

    def run(
        self,
        *,
        around: Around = straight,
        task_around: Around = straight,
        tries_max: int = 1,
        only_sweep: bool = False,
        loses: int | None = None,
        through: Callable[[Sink], Sink] = lambda sink: sink,
    ) -> Exception | None:
        """One incarnation from where the checkpoint stands to the end, or to its death; returns
        what stopped it.

        ``only_sweep``: it runs one more epoch, without rows. ``loses``: the target is put back to
        before it has committed that batch, behind the driver's back. ``through``: wraps the sink
        before it is opened.
        """
        batch_ids = [len(self._done)] if only_sweep else range(len(self._done), EPOCHS)
        try:
            with self.opened(through=through) as one:
                log = interpose(MemoryDecisionLog(self.storage, self.query_id), around)
                port = one.sink.participant
                ports = [interpose(port if loses is None else loses_commit(port, loses), around)]
                coordinator = Coordinator(one.run, ports, log, noted=Noted(first=0))
                for batch_id in batch_ids:
                    job = TaskJob(
                        one.sink.writers,
                        [] if only_sweep else self.partitions(batch_id),
                        around=task_around,
                        tries_max=tries_max,
                        losers=self.hooks.lists_open,
                        kill=self.hooks.kill_task,
                    )
                    coordinator.run(
                        batch_id, SourceOffsets((), (f"end of {batch_id}",)), interpose(job, around)
                    )
                    around("Spark's commit log", lambda batch_id=batch_id: self._log_done(batch_id))  # type: ignore[misc]
        except (ExactumError, SparkStopped) as error:
            return error
        except Crash:
            return None
        return None

    def _log_done(self, batch_id: int) -> None:
        if batch_id in self._done:
            raise SparkStopped(f"batch {batch_id} is there already")
        self._done.add(batch_id)

    def put_log_back(self, before: int) -> None:
        """To before the COMMIT of that batch."""
        records = self.storage.records
        commits = [s for s, r in records.items() if r.decision is Decision.COMMIT]
        first = min(slot[1:] for slot in commits if slot[1] >= before)
        for slot in [slot for slot in records if slot[1:] >= first]:
            del records[slot]

    # ---- oracle

    def finish(self, what: str = "") -> None:
        """A last incarnation runs everything; then each row stands once and nothing is left
        open.
        """
        error = self.run()
        assert error is None, f"{what}: the last run ended with {type(error).__name__}: {error}"
        self._expect(Counter(self._rows(self.batches[: EPOCHS * PARTITIONS])), what)
        self.expect_nothing_open(after_sweeping=True)

    def expect_nothing(self) -> None:
        seen = self._visible() - self._before
        assert not seen, f"visible, and should not be: {dict(seen)}"

    def expect_all(self) -> None:
        self.expect_batches(self.batches[: EPOCHS * PARTITIONS])

    def expect(self, batch_id: int) -> None:
        self.expect_batches(self.batches[batch_id * PARTITIONS : (batch_id + 1) * PARTITIONS])

    def expect_batches(self, batches: Sequence[Any]) -> None:
        self._expect(Counter(self._rows(batches)), "")

    def expect_at_most(self, batch_id: int) -> None:
        extra = (
            self._visible()
            - self._before
            - Counter(self._rows(self.batches[batch_id * PARTITIONS :][:PARTITIONS]))
        )
        assert not extra, f"visible more often than once: {dict(extra)}"

    def expect_nothing_open(self, *, after_sweeping: bool = False) -> None:
        """Neither the participant nor a plain client finds anything open, here or after some starts
        that sweep.
        """
        if not self.hooks.lists_open:
            return
        left: Sequence[object] = ()
        for cleaning in range(CLEANINGS_MAX if after_sweeping else 1):
            if after_sweeping:
                error = self.run(only_sweep=True)
                assert error is None, (
                    f"a start that had to sweep ended with {type(error).__name__}: {error}"
                )
                time.sleep(0.1 * cleaning)
            with self.opened() as one:
                left = [*one.sink.participant.list_open(), *self.hooks.leftovers()]
            if not left:
                return
        raise AssertionError(f"left open: {left}")

    def _expect(self, expected: Counter[str], what: str) -> None:
        deadline_s = time.monotonic() + self.hooks.visible_within_s
        while (
            seen := self._visible() - self._before
        ) != expected and time.monotonic() < deadline_s:
            if seen - expected:
                break
            time.sleep(0.05)
        assert seen == expected, (
            f"{what}: missing {dict(expected - seen)}, too many {dict(seen - expected)}"
        )

    def _visible(self) -> Counter[str]:
        return Counter(map(repr, self.hooks.visible_rows()))

    def _rows(self, batches: Iterable[Any]) -> Iterator[str]:
        return (repr(row) for batch in batches for row in self.hooks.rows_in(batch))


class Takeover:
    """At call ``at`` of one driver another one runs everything, and only then the call goes on."""

    def __init__(self, at: int, place: Scenario) -> None:
        self.hit = ""
        self._at = at
        self._place = place
        self._calls = 0

    def around(self, label: str, call: Any) -> object:
        self._calls += 1
        if self._calls == self._at:
            self.hit = label
            error = self._place.run()
            assert error is None, f"the successor ended with {type(error).__name__}: {error}"
        return call()


def loses_commit(port: Participant, batch_id: int) -> Participant:
    """``port``, whose target is put back to before the commit of a batch: it says that it is
    committed, and what was prepared is prepared.
    """

    def around(label: str, call: Any) -> object:
        return call()

    lossy: Any = interpose(port, around)

    def commit(permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        if permit.record.epoch.batch_id == batch_id:
            return CommitReport(tuple(prepared))
        return port.commit(permit, prepared)

    lossy.commit = commit
    return cast(Participant, lossy)


def die_before(label: str, after: int = 1) -> Around:
    """An ``Around`` with which the process dies at the ``after``-th call of ``label``, without its
    effect.
    """
    seen = {"calls": 0, "dead": 0}

    def around(name: str, call: Any) -> object:
        seen["calls"] += name == label
        if seen["dead"] or (name == label and seen["calls"] == after):
            seen["dead"] = 1
            raise Crash(name)
        return call()

    return around
