"""The contract of a decision log, as plain methods with asserts: mix it into a test class of any
runner::

    class TestMyLog(LogContract):
        def open_log(self, query_id: str) -> DecisionLog:
            return MyLog(self.place, query_id)  # each call: another connection to the same place
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from exactum.errors import CheckpointRefused, ExactumError, Fenced
from exactum.protocol.decision_log import DecisionLog, Identified, PermitLog
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
    SourceOffsets,
)

QUERY_ID = "5f1c9a3e-contract"


def record(
    batch_id: int,
    attempt: int = 0,
    incarnation: str = "one",
    decision: Decision = Decision.COMMIT,
    query_id: str = QUERY_ID,
) -> DecisionRecord:
    """A record with something in every field that must come back unchanged."""
    prepared = (
        PreparedTransaction("orders", f"orders/{incarnation}/{batch_id}", 3, '{"epoch": 7}'),
        PreparedTransaction("älter", 'quote " backslash \\ newline \n', 0, "{}"),
    )
    committed = decision is Decision.COMMIT
    return DecisionRecord(
        Epoch(query_id, batch_id),
        attempt,
        decision,
        Incarnation(incarnation),
        prepared if committed else (),
        SourceOffsets(('{"t": {"0": 1}}', None), ('{"t": {"0": 9}}', None))
        if committed
        else SourceOffsets(),
        attempt - 1 if committed and attempt else None,
    )


class LogContract:
    """Each method is one promise of ``protocol.decision_log``; each starts with an empty place."""

    def open_log(self, query_id: str) -> DecisionLog:
        """One more incarnation's log over the place of this test. ``prune`` must work at once."""
        raise NotImplementedError

    def test_an_empty_log_has_no_records(self) -> None:
        """A batch that nobody decided reads as empty."""
        assert tuple(self.open_log(QUERY_ID).read(0)) == ()

    def test_a_record_comes_back_unchanged(self) -> None:
        """What was decided is read by every incarnation, field by field, in the order of
        attempts.
        """
        log = self.open_log(QUERY_ID)
        first, second = record(7, 0, decision=Decision.ABORT), record(7, 1)
        assert log.decide(first) == first
        assert log.decide(second) == second
        for reader in (log, self.open_log(QUERY_ID)):
            assert tuple(reader.read(7)) == (first, second)
            assert tuple(reader.read(8)) == ()

    def test_the_first_record_counts(self) -> None:
        """Whoever comes second gets the first one's record, for ever."""
        one, two = self.open_log(QUERY_ID), self.open_log(QUERY_ID)
        first, late = record(3, 0, "one"), record(3, 0, "two", Decision.ABORT)
        assert one.decide(first) == first
        assert two.decide(late) == first
        assert two.decide(late) == first
        assert tuple(two.read(3)) == (first,)

    def test_deciding_is_idempotent(self) -> None:
        """The same record again returns itself: a lost reply may be asked for again."""
        mine = record(3)
        assert self.open_log(QUERY_ID).decide(mine) == mine
        assert self.open_log(QUERY_ID).decide(mine) == mine

    def test_threads_that_race_agree(self) -> None:
        """Of many incarnations that decide one slot, one wins, and all are told the same one."""
        logs = [self.open_log(QUERY_ID) for _ in range(4)]
        with ThreadPoolExecutor(4, "exactum-race") as pool:
            for batch_id in range(10):
                mine = [record(batch_id, 0, f"i{i}") for i in range(4)]
                answers = list(pool.map(lambda log, m: log.decide(m), logs, mine))
                assert len(set(answers)) == 1
                assert answers[0] in mine

    def test_a_pruned_slot_is_never_free_again(self) -> None:
        """After pruning, a zombie's decide is fenced, on every incarnation, and leaves nothing
        behind.
        """
        zombie, log = self.open_log(QUERY_ID), self.open_log(QUERY_ID)
        assert tuple(zombie.read(5)) == ()
        for batch_id in range(12):
            log.decide(record(batch_id))
        log.prune(10)
        for batch_id in (5, 9):
            for attempt in (0, 1):
                refused: ExactumError | None = None
                try:
                    zombie.decide(record(batch_id, attempt, "zombie"))
                except Fenced as error:
                    refused = error
                assert refused is not None, f"slot {batch_id}-{attempt} was given away again"
        assert tuple(zombie.read(10)) == (record(10),)
        assert tuple(log.read(11)) == (record(11),)

    def test_reading_below_the_floor_is_refused(self) -> None:
        """A checkpoint that is older than its log is refused, for an empty answer would say
        "undecided".

        So is a driver that looked at the batch before others decided and pruned it: it must learn
        that it is old.
        """
        log, old = self.open_log(QUERY_ID), self.open_log(QUERY_ID)
        assert tuple(old.read(3)) == ()
        for batch_id in range(5):
            log.decide(record(batch_id))
        log.prune(4)
        for reader in (self.open_log(QUERY_ID), old):
            refused = False
            try:
                reader.read(3)
            except CheckpointRefused:
                refused = True
            assert refused

    def test_pruning_is_idempotent_and_keeps_the_highest_floor(self) -> None:
        """An old incarnation that prunes with its old number lowers nothing."""
        log, old = self.open_log(QUERY_ID), self.open_log(QUERY_ID)
        for batch_id in range(8):
            log.decide(record(batch_id))
        assert log.prune(6) == 6
        assert log.prune(6) == 0
        old.prune(2)
        self.open_log(QUERY_ID).prune(2)
        fenced = False
        try:
            old.decide(record(4, 0, "zombie"))
        except Fenced:
            fenced = True
        assert fenced
        assert tuple(self.open_log(QUERY_ID).read(6)) == (record(6),)

    def test_an_id_stays_what_it_is(self) -> None:
        """Of a log that has one: every incarnation is told the same, whatever was pruned."""
        log = self.open_log(QUERY_ID)
        if not isinstance(log, Identified):
            return
        log.decide(record(0))
        found = log.log_id()
        for batch_id in range(1, 4):
            self.open_log(QUERY_ID).decide(record(batch_id))
        log.prune(3)
        assert found
        assert PermitLog(self.open_log(QUERY_ID)).log_id() == found == log.log_id()
