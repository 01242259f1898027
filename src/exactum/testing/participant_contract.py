"""The contract of a sink and its participant, as plain methods with asserts: mix it into a test
class of any runner::

    class TestMySink(SinkContract):
        def make_sink(self) -> Sink:
            return MySink(self.place)              # another object over the same place at each call
        def visible_rows(self) -> Iterable[object]:
            return plain_client_reads(self.place)  # never by the code under test
        def batches(self) -> Sequence[pa.RecordBatch]:
            return record_batches                  # four or more, of different rows

Nothing here knows a technology: it drives the ports, with the real coordinator over a decision log
in memory. Each test takes a query id of its own, and counts what has become visible since it began.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from exactum.errors import CheckpointRefused, ExactumError, HeuristicOutcome
from exactum.protocol.model import Decision, PreparedTransaction, Sighting, new_incarnation, rows_of
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, Sink, TaskName, Writer
from exactum.testing.faults import Fault, FaultPlan, straight, sweep
from exactum.testing.sink_place import Scenario, Takeover, die_before
from exactum.testing.task_job import TaskJob

if TYPE_CHECKING:
    import pyarrow as pa

NOT_REPEATED = tuple(f for f in Fault if f is not Fault.REPEATED)
"""For calls that are not idempotent: those of a writer."""
STALLS_MAX = 1_000


@cache
def _staging_of_process() -> str:
    folder = tempfile.mkdtemp(prefix="exactum-staging-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class SinkContract:
    """Each method is one promise. The hooks come first; three are yours to write.

    ``columns``: (name, Spark type) of ``batches``, for a sink that asks for them when it is opened;
    default: none. ``lists_open``: set to False for a target that cannot list what is open; what
    crashes leave is then not looked at. ``tells_lost``: False for a target that cannot tell a lost
    transaction from one whose outcome is unknown. ``visible_within_s``: how long a commit may take
    to show in ``visible_rows``; default 10. ``stalls_in_tasks``: False where a stalled task rightly
    makes others wait (row locks).
    """

    columns: Sequence[tuple[str, str]] = ()
    lists_open = True
    tells_lost = True
    visible_within_s = 10.0
    stalls_in_tasks = True

    # ---- hooks -------------------------------------------------------------------------------

    def make_sink(self) -> Sink:
        """A sink over the place of this test, another object at each call: each stands for another
        process.
        """
        raise NotImplementedError

    def visible_rows(self) -> Iterable[object]:
        """Every row that a plain reader sees, as ``rows_in`` gives them, in any order."""
        raise NotImplementedError

    def batches(self) -> Sequence[pa.RecordBatch]:
        """Four Arrow record batches or more, none empty, all rows different. Called once for each
        scenario: a target with a unique key needs other rows each time."""
        raise NotImplementedError

    def rows_in(self, batch: pa.RecordBatch) -> list[object]:
        """The rows of a record batch, as ``visible_rows`` gives them; default: tuples of Python
        values.
        """
        return [tuple(row.values()) for row in batch.to_pylist()]

    def reset(self) -> None:
        """Empty the target; called before each scenario. Default: nothing, for scenarios do not
        disturb each other, but hundreds of them make a long ``visible_rows``."""

    def leftovers(self) -> Sequence[object]:
        """What a plain client finds that is neither visible nor gone (staged files, prepared
        transactions).
        """
        return ()

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        """Undo prepared transactions behind exactum's back, as an operator would; default: by
        ``participant``.
        """
        participant.abort(
            [Sighting(p.participant, p.identity, new_incarnation(), p.payload) for p in prepared]
        )

    def staging_folder(self) -> str:
        """Where rows wait, of a sink that leaves them in files; default: a temporary folder of this
        process.
        """
        return _staging_of_process()

    def kill_task(self, writer: Writer) -> None:
        """The process of ``writer`` has died: let go of what the system would take back
        (connections).
        """

    # ---- one transaction ---------------------------------------------------------------------

    def test_rows_are_invisible_until_the_commit_and_visible_after(self) -> None:
        """No reader sees a written, prepared or verified row; all see each row once when commit has
        returned.
        """
        place = Scenario(self)
        with place.opened() as one:
            prepared = place.prepare(one, place.partitions(0))
            assert rows_of(prepared) == place.count(0), (
                f"prepared {rows_of(prepared)} rows of {place.count(0)}"
            )
            place.expect_nothing()
            permit = place.permit(one, prepared)
            place.expect_nothing()
            report = one.sink.participant.commit(permit, permit.record.prepared)
            assert report.committed == permit.record.prepared, report
            assert not report.expired, report
            place.expect(0)

    def test_abort_leaves_nothing(self) -> None:
        """What is aborted never becomes visible and is not open any more; aborting it again changes
        nothing.
        """
        place = Scenario(self)
        with place.opened() as one:
            prepared = place.prepare(one, place.partitions(0))
            sightings = place.sightings(one, prepared)
            for _ in range(2):
                one.sink.participant.abort(sightings)
                place.expect_nothing()
            place.expect_nothing_open()

    def test_a_task_that_fails_leaves_nothing(self) -> None:
        """A writer's abort, before any row, after some, and after ``prepare``, because another
        sink's writer failed; twice is as good. What it does not undo itself the driver finds.
        """
        place = Scenario(self)
        with place.opened() as one:
            for steps in range(3):
                writer = one.sink.writers.open(one.order(0), TaskName(0, steps, 0))
                for batch in place.partitions(0)[0] if steps else ():
                    writer.write(batch)
                if steps == 2:
                    writer.prepare()
                writer.abort()
                writer.abort()
                place.expect_nothing()
                place.expect_nothing_open(after_sweeping=True)

    def test_a_commit_may_be_repeated(self) -> None:
        """By the same driver or by another one, at once or later: nothing is doubled, and it is a
        success.
        """
        place = Scenario(self)
        with place.opened() as one, place.opened() as two:
            permit = place.permit(one, place.prepare(one, place.partitions(0)))
            for who in (one, one, two, two):
                assert (
                    who.sink.participant.commit(permit, permit.record.prepared).committed
                    == permit.record.prepared
                )
            with place.opened() as later:
                assert (
                    later.sink.participant.commit(permit, permit.record.prepared).committed
                    == permit.record.prepared
                )
            place.expect(0)

    def test_an_abort_after_the_commit_leaves_it(self) -> None:
        """A sighting may be older than the commit of its transaction: aborting it then does
        nothing.
        """
        place = Scenario(self)
        with place.opened() as one:
            prepared = place.prepare(one, place.partitions(0))
            sightings = place.sightings(one, prepared)
            permit = place.permit(one, prepared)
            one.sink.participant.commit(permit, permit.record.prepared)
            one.sink.participant.abort(sightings)
            place.expect(0)

    def test_another_process_commits(self) -> None:
        """The record's text is all that another process needs, whatever its guarantee; the one that
        prepared may be gone.
        """
        for guarantee in Guarantee:
            place = Scenario(self)
            with place.opened() as one:
                permit = place.permit(one, place.prepare(one, place.partitions(0)))
            with place.opened(guarantee) as two:
                own = two.sink.participant
                if self.lists_open:
                    assert own.list_open()
                assert own.commit(permit, permit.record.prepared).committed == (
                    permit.record.prepared
                )
                place.expect(0)
                place.expect_nothing_open()

    def test_writer_factories_pickle(self) -> None:
        """The executors get a copy, which prepares what the driver commits."""
        place = Scenario(self)
        with place.opened() as one:
            copied = pickle.loads(pickle.dumps(one.sink.writers))
            prepared = TaskJob(copied, place.partitions(0))(one.order(0))
            permit = place.permit(one, prepared)
            one.sink.participant.commit(permit, permit.record.prepared)
            place.expect(0)

    def test_partitions_without_rows(self) -> None:
        """A task without rows leaves nothing to commit, or something that commits to nothing."""
        place = Scenario(self)
        with place.opened() as one:
            writer = one.sink.writers.open(one.order(0), TaskName(0, 0, 0))
            writer.write(place.batches[0].slice(0, 0))
            nothing = writer.prepare()
            if nothing is not None:
                assert nothing.rows == 0
                permit = place.permit(one, [nothing])
                one.sink.participant.commit(permit, permit.record.prepared)
            place.expect_nothing()
            place.expect_nothing_open()

    def test_weaker_guarantees_make_rows_visible_by_themselves(self) -> None:
        """Under at-least-once and at-most-once a task's rows are visible when prepare has
        returned, or when the driver has delivered what tasks have left to it.
        """
        for guarantee in (Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE):
            place = Scenario(self)
            with place.opened(guarantee) as one:
                left = TaskJob(one.sink.writers, place.partitions(0))(one.order(0))
                if left:
                    one.sink.participant.deliver(left)
                place.expect(0)
                place.expect_nothing_open()

    def test_names_are_matched_exactly(self) -> None:
        """Queries and sinks whose names begin alike neither list nor abort each other's
        transactions.
        """
        place = Scenario(self)
        with place.opened() as mine:
            query, sink = mine.run.query_id, mine.participant
            batches = iter(place.batches)
            with (
                place.opened(participant=f"{sink}2") as longer,
                place.opened(participant=f"{sink}#2") as numbered,
                place.opened(query_id=f"{query}-eu") as elsewhere,
            ):
                everyone = (mine, longer, numbered, elsewhere)
                prepared = {id(one): place.prepare(one, [[next(batches)]]) for one in everyone}
                if self.lists_open:
                    for one in everyone:
                        seen = {s.identity for s in one.sink.participant.list_open()}
                        assert seen == {p.identity for p in prepared[id(one)]}, (
                            f"{one.run.query_id}/{one.participant}"
                        )
                mine.sink.participant.abort(place.sightings(mine, prepared[id(mine)]))
                for one in everyone[1:]:
                    permit = place.permit(one, prepared[id(one)])
                    one.sink.participant.commit(permit, permit.record.prepared)
            place.expect_batches(place.batches[1:4])

    # ---- the whole protocol, under faults ------------------------------------------------------

    def test_every_fault_at_every_call_of_the_driver(self) -> None:
        """Crashed before or after it, its reply lost, repeated: each row stands once at the end."""

        def scenario(plan: FaultPlan) -> None:
            place = Scenario(self)
            place.run(around=plan.around)
            place.finish()

        sweep(scenario)

    def test_every_fault_at_every_call_of_a_recovery(self) -> None:
        """The same for the run that finds leftovers, and for the one that finds a decision to be
        redelivered.
        """
        for died_before in ("decide", "commit"):

            def scenario(plan: FaultPlan, died_before: str = died_before) -> None:
                place = Scenario(self)
                place.run(around=die_before(died_before, after=2 if died_before == "decide" else 1))
                place.run(around=plan.around)
                place.finish()

            sweep(scenario)

    def test_every_fault_at_every_call_of_a_task(self) -> None:
        """A task's process that dies with its driver, at any call, or a target that fails it
        there.
        """

        def scenario(plan: FaultPlan) -> None:
            place = Scenario(self)
            place.run(task_around=plan.around)
            place.finish()

        sweep(scenario, NOT_REPEATED)

    def test_a_task_may_die_at_every_call_and_is_tried_again(self) -> None:
        """The driver lives on: the second try writes the rows again, and what the first one left is
        swept.
        """

        def scenario(plan: FaultPlan) -> None:
            place = Scenario(self)
            place.run(task_around=plan.around, tries_max=2)
            place.finish()

        sweep(scenario, NOT_REPEATED)

    def test_two_drivers_at_once(self) -> None:
        """An old driver is stalled at any call while a new one does everything; then it wakes up
        and goes on.
        """
        in_tasks = self.stalls_in_tasks
        self._stall_at_every_call(
            lambda place, stall: place.run(
                around=stall.around, task_around=stall.around if in_tasks else straight
            )
        )

    def _stall_at_every_call(self, run: Callable[[Scenario, Takeover], object]) -> None:
        for at in range(1, STALLS_MAX):
            place = Scenario(self)
            stall = Takeover(at, place)
            run(place, stall)
            place.finish(f"stalled at call {at} ({stall.hit})")
            if not stall.hit:
                return
        raise AssertionError(f"there were {STALLS_MAX} calls, and no end")

    def test_a_target_that_was_put_back(self) -> None:
        """To before its last batch: the next start refuses, or commits what waits there. It is
        never written on past a gap in silence.
        """
        place = Scenario(self)
        assert place.run(loses=1) is None
        place.expect(0)
        error = place.run(only_sweep=True)
        if error is None:
            place.expect_all()
            return
        assert isinstance(error, CheckpointRefused), f"{type(error).__name__}: {error}"
        with place.opened() as one:
            assert one.participant in str(error), f"the message does not name the sink: {error}"
        place.expect(0)

    def test_a_log_that_was_put_back(self) -> None:
        """The next start refuses. Where Spark has not finished the batch, so does a target that can
        tell what it has; it is not written twice, unless a person says that it shall be.
        """
        place = Scenario(self)
        assert place.run() is None
        place.put_log_back(1)
        error = place.run(only_sweep=True)
        assert isinstance(error, CheckpointRefused), f"{type(error).__name__}: {error}"
        place.expect_all()
        place = Scenario(self)
        place.run(around=die_before("Spark's commit log", after=2))
        place.put_log_back(1)
        with place.opened() as one:
            can_tell = one.sink.participant.remembers
        if can_tell:
            error = place.run()
            assert isinstance(error, CheckpointRefused), f"{type(error).__name__}: {error}"
            place.expect_all()
            with place.opened() as operator:
                operator.sink.participant.forget_batches()
            assert place.run() is None

    def test_a_decided_transaction_that_the_target_lost(self) -> None:
        """It is salvaged, or the query stops and says so; it is never passed over in silence."""
        place = Scenario(self)
        place.run(around=die_before("commit"))
        record = next(r for r in place.storage.records.values() if r.decision is Decision.COMMIT)
        with place.opened() as operator:
            self.lose(operator.sink.participant, record.prepared[:1])
        error = place.run()
        if error is None:
            place.finish()
            return
        allowed = HeuristicOutcome if self.tells_lost else ExactumError
        assert isinstance(error, allowed), f"{type(error).__name__}: {error}"
        if self.tells_lost:
            assert operator.participant in str(error), (
                f"the message does not name the sink: {error}"
            )
        place.expect_at_most(0)
