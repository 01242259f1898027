"""The rule of the ends: which of target, log and checkpoint fit together, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum.errors import CheckpointRefused, RowsRefused, Unavailable
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.ends import Ends, Noted, TargetEnd, committed_before, gaps
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation, SourceOffsets
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.testing import MemoryDecisionLog, MemoryStorage
from model.memory import MemoryParticipant, MemoryTarget, MemoryWrite
from model.simulation import replay
from tests.kit.errors import raised

QUERY = "query"

# ---- the comparison ------------------------------------------------------------------------------

BATCH = st.integers(0, 30)
MAYBE = st.none() | BATCH
TARGETS = st.lists(
    st.builds(TargetEnd, st.just("t"), st.none() | st.integers(-1, 30), MAYBE), max_size=3
).map(tuple)
ENDS = st.builds(Ends, BATCH, MAYBE, MAYBE, TARGETS)


def up_to(batch: int | None) -> set[int]:
    return set() if batch is None else set(range(batch + 1))


@given(ENDS)
def test_what_one_has_and_another_lacks_is_a_gap(ends: Ends) -> None:
    """Told by sets of batches: each gap is named, and nothing else."""
    log = up_to(ends.log)
    is_cut = not up_to(ends.noted) <= log
    wrong = [
        target
        for target in ends.targets
        if target.has is not None
        and not (up_to(target.has) <= log and up_to(target.owes) <= up_to(target.has))
    ]
    assert len(gaps(ends)) == is_cut + len(wrong)


@given(MAYBE, MAYBE, BATCH)
def test_what_a_checkpoint_knows(first: int | None, undecided: int | None, begins: int) -> None:
    """Each batch from ``first`` on is decided, unless ``at_least_once`` wrote it."""
    decided = [
        b
        for b in range(begins)
        if first is not None and b >= first and (undecided is None or b < undecided)
    ]
    assert Noted(first, undecided_from=undecided).last(begins) == max(decided, default=None)


@given(st.integers(0, 5), st.integers(-1, 2), st.integers(0, 5), st.integers(0, 2))
def test_where_the_comparison_begins(first: int, accepted: int, batch: int, attempt: int) -> None:
    record = DecisionRecord(Epoch(QUERY, batch), attempt, Decision.ABORT, Incarnation("i"))
    assert Noted(first, accepted=accepted).covers(record) == (
        batch > first or (batch == first and attempt > accepted)
    )
    assert Noted().covers(record)


# ---- starts --------------------------------------------------------------------------------------


class Silent(MemoryParticipant):
    """Of a target without a marker, which knows its transactions."""

    remembers = False


class Fails(MemoryParticipant):
    """Nothing is committed."""

    def commit(self, permit, prepared):  # type: ignore[no-untyped-def]
        raise Unavailable("the target is gone")


class World:
    """A target and a decision log, and drivers that come and go."""

    def __init__(self, *, marker: bool = True, noted: Noted = Noted()) -> None:  # noqa: B008
        self.target = MemoryTarget("t")
        self.storage = MemoryStorage()
        self.kind = MemoryParticipant if marker else Silent
        self.noted = noted

    def start(self, who: str, kind: type[MemoryParticipant] | None = None) -> Coordinator:
        run = QueryRun(QUERY, Incarnation(who), Guarantee.EXACTLY_ONCE)
        port = (kind or self.kind)(self.target, run)
        log = MemoryDecisionLog(self.storage, QUERY)
        return Coordinator(run, [port], log, noted=self.noted)

    def run(self, driver: Coordinator, batches: Sequence[int]) -> None:
        for batch_id in batches:
            driver.run(batch_id, SourceOffsets(), MemoryWrite([self.target]))

    def lose(self, *batches: int) -> None:
        """The COMMITs of these batches, from the log."""
        doomed = [
            s
            for s, r in self.storage.records.items()
            if s[1] in batches and r.decision is Decision.COMMIT
        ]
        assert len(doomed) == len(batches)
        for slot in doomed:
            del self.storage.records[slot]

    def has(self, *batches: int) -> bool:
        return self.target.visible == [MemoryWrite.row(batch_id, 0) for batch_id in batches]


@pytest.mark.parametrize("marker", [True, False], ids=["marker", "no marker"])
@pytest.mark.parametrize(
    ("decided", "lost", "asked"),
    [
        *(pytest.param(n + 1, [n], n, id=f"the last one of {n + 1}") for n in range(4)),
        pytest.param(4, [2, 3], 2, id="the last two: an older checkpoint"),
        # What is committed may be of that epoch alone, or of the next one as well: nobody can tell.
        pytest.param(3, [2], 3, id="that of an epoch that Spark has logged"),
        pytest.param(4, [2, 3], 3, id="that one, and the next one's"),
    ],
)
def test_decisions_are_gone(decided: int, lost: list[int], asked: int, marker: bool) -> None:
    """Rows of the batch that Spark asks for stand already, or may. No fence is set, so the next start
    finds the same. Where Spark has logged the batch, so does who looks at the log alone.
    """
    world = World(marker=marker)
    world.run(world.start("a"), range(decided))
    world.lose(*lost)
    before = list(world.storage.records.values())
    what = f"batch {decided - 1}" if marker and asked in lost else f"{len(lost)} transactions"
    for who in "bc":
        with raised(CheckpointRefused, "ENDS_DIFFER", f"batch {asked}", "'t'", what):
            world.run(world.start(who), [asked])
    if asked > lost[0]:
        world.noted = Noted(first=0)
        with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", 1, "checkpoint", 2):
            world.run(world.start("d"), [asked])
    assert world.has(*range(decided))
    assert list(world.storage.records.values()) == before


def test_decided_and_not_committed_is_gone() -> None:
    """Nothing of it is visible, so it is run again."""
    world = World()
    world.run(world.start("a"), [0])
    with pytest.raises(Unavailable):
        world.run(world.start("b", Fails), [1])
    world.lose(1)
    world.run(world.start("c"), [1, 2])
    assert world.has(0, 1, 2)
    assert world.target.unsettled() == []


def test_batches_without_a_decision() -> None:
    """A query that ran at least once for a while has none on record, and says so in its checkpoint.
    Spark's own sink says nothing: refused, until somebody accepts it.
    """
    world = World(noted=Noted(0, undecided_from=3))
    world.run(world.start("a"), range(3))
    world.run(world.start("b"), [5, 6])
    world.noted = Noted(5)
    with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", 6, "checkpoint", 8):
        world.run(world.start("c"), [9])
    world.noted = Noted(9)
    world.run(world.start("d"), [9])
    assert world.has(0, 1, 2, 5, 6, 9)


@pytest.mark.parametrize("pruned_below", [0, 6, 9, 10])
@pytest.mark.parametrize("marker", [True, False])
def test_old_records_are_pruned(pruned_below: int, marker: bool) -> None:
    """What was committed under them is no reason to stop."""
    world = World(marker=marker, noted=Noted(0))
    world.run(world.start("a"), range(10))
    MemoryDecisionLog(world.storage, QUERY).prune(pruned_below)
    world.run(world.start("b"), [10, 11])
    assert len(world.target.visible) == 12


def test_a_target_that_was_put_back() -> None:
    """Refused as often as it is started, and by a run that lives before it writes on. Accepted, it
    is compared from there on.
    """
    world = World(noted=Noted(0))
    driver = world.start("a")
    world.run(driver, range(3))
    assert world.target.put_back()
    with raised(CheckpointRefused, "ENDS_DIFFER", "'t'", 1, "decision log", 2):
        world.run(driver, [3])
    for who in "bc":
        with raised(CheckpointRefused, "ENDS_DIFFER", "'t'", 1, "decision log", 2):
            world.run(world.start(who), [3])
    world.noted = Noted(3)
    world.run(world.start("d"), [3, 4])
    assert world.has(0, 1, 3, 4)
    assert world.target.put_back()
    with raised(CheckpointRefused, "ENDS_DIFFER", "'t'", 3, "decision log", 4):
        world.run(world.start("e"), [5])


def test_what_was_committed_before_a_start() -> None:
    """Of the batches before it, and of its own where that is decided; nothing that was accepted."""
    world = World()
    world.run(world.start("a"), range(3))
    log = MemoryDecisionLog(world.storage, QUERY)

    def rows(begins: int, noted: Noted) -> int:
        return sum(p.rows for p in committed_before(log, begins, noted))

    each = rows(0, Noted())
    assert each > 0
    assert rows(2, Noted()) == rows(3, Noted(0)) == 3 * each
    assert rows(3, Noted(2)) == each
    assert rows(3, Noted(3)) == 0


def test_a_target_that_was_emptied() -> None:
    """Between two runs it is taken; under a run it is a loss."""
    world = World(noted=Noted(0))
    driver = world.start("a")
    world.run(driver, range(2))
    world.target.transactions.clear()
    with raised(CheckpointRefused, "ENDS_DIFFER", "'t'", "decision log", "batch 1"):
        world.run(driver, [2])
    world.run(world.start("b"), [2])


def test_rows_that_are_refused_where_a_commit_is_lost() -> None:
    """They may refer to what is gone: that is the reason, not that rows are wrong."""
    world = World()
    driver = world.start("a")
    world.run(driver, range(2))
    assert world.target.put_back()

    def refused(order: object) -> Sequence[object]:
        raise RowsRefused("no such key")

    with raised(CheckpointRefused, "ENDS_DIFFER", "'t'", 0, "decision log", 1):
        driver.run(2, SourceOffsets(), refused)  # type: ignore[arg-type]
    world.noted = Noted(2)
    with pytest.raises(RowsRefused):
        world.start("c").run(2, SourceOffsets(), refused)  # type: ignore[arg-type]


def test_a_commit_that_failed_and_that_spark_was_not_told_of() -> None:
    """The user's function caught the error: the next start carries the decision out."""
    for marker in (True, False):
        world = World(marker=marker, noted=Noted(0))
        with pytest.raises(Unavailable):
            world.run(world.start("a", Fails), [0])
        world.run(world.start("b"), [1])
        assert world.has(0, 1)
        assert world.target.unsettled() == []


@pytest.mark.parametrize("later", range(8))
def test_what_a_start_has_salvaged_before_its_door_is_no_reason_to_stop(later: int) -> None:
    """A copy is of the incarnation that made it, in a batch before its fence: however many
    batches ago that was.
    """
    world = World(marker=False)
    world.run(world.start("a"), range(3))

    class Expires(Silent):
        def commit(self, permit, prepared):  # type: ignore[no-untyped-def]
            world.target.expire()
            raise Unavailable("the target is gone")

    with pytest.raises(Unavailable):
        world.run(world.start("b", Expires), [3])
    world.run(world.start("c"), range(3, 4 + later))
    MemoryDecisionLog(world.storage, QUERY).prune(max(0, later - 1))
    world.run(world.start("d"), [4 + later])
    assert world.has(*range(5 + later))


def test_others_went_on_between_a_salvage_and_the_door_of_the_start_that_made_it() -> None:
    """``a`` salvages batch 0 at its start, ``b`` lives on, does batch 1, prunes batch 0; then
    ``a`` sets its fence.
    """
    replay("b3p1t2r0k: b1 b12 x b1 a9 b1 t t b20 a8")


@pytest.mark.parametrize("marker", [True, False])
def test_another_one_decides_meanwhile(marker: bool) -> None:
    """What an incarnation that lives commits while a start looks is on record by then."""
    world = World(marker=marker, noted=Noted(0))
    world.run(world.start("a"), [0])
    alive = world.start("b")
    world.run(alive, [1])

    class Marked(MemoryParticipant):
        def last_batch(self, committed=()):  # type: ignore[no-untyped-def]
            world.run(alive, [2, 3])
            return super().last_batch()

    class Listed(Silent):
        def list_committed(self, is_asked, recent):  # type: ignore[no-untyped-def]
            world.run(alive, [2, 3])
            return super().list_committed(is_asked, recent)

    starts = world.start("c", Marked if marker else Listed)
    assert not starts.run(2, SourceOffsets(), MemoryWrite([world.target])).written
