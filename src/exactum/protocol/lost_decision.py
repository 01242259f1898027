"""Finds at a start that a decision was carried out and is not on record any more, before its rows
are written again.

A checkpoint that was restored from an older copy, or a record that a disk has lost, looks to a
start like an epoch that was never decided. A target that still knows what it committed can tell.
SQL and file sinks have a row or a marker for each epoch: they are asked for their last one, before
anything of a later epoch is swept, and refuse in ``verify`` as well. Others are asked which of
their transactions are committed.

It may run beside an incarnation that is still alive: whatever is seen as committed was recorded
before, and the records are read again after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Sighting
from exactum.protocol.participant import Participant, Remembering

R = TypeVar("R")

RECENT_BATCHES = 4
"""Completed batches whose records are read. A sink that takes turns with its names, as Kafka's
does, comes back to each within three."""


class Each(Protocol):
    """Calls a function with every participant, and returns what it returned."""

    def __call__(self, function: Callable[[Participant], R], /) -> list[R]: ...


def recent(log: DecisionLog, batch_id: int) -> list[DecisionRecord]:
    """The records of ``RECENT_BATCHES`` before ``batch_id``, or as far back as there are sound
    ones.
    """
    records: list[DecisionRecord] = []
    for earlier in range(batch_id - 1, max(0, batch_id - RECENT_BATCHES) - 1, -1):
        try:
            records.extend(log.read(earlier))
        except (
            CheckpointRefused,
            InvariantBroken,
        ):  # pruned, or damaged: nobody needs it, and it proves nothing
            break
    return records


def refuse_strange(log: DecisionLog, batch_id: int, place: str) -> None:
    """Refuse to take transactions of a query for undecided by a log that is not the query's:
    whatever writes has set its fence before, at ``batch_id``, the first one that Spark has not
    logged as done, or earlier. ``place`` is the query, for the message.

    Raises:
        CheckpointRefused: the log has nothing of it.
        ExactumError: as ``DecisionLog.read``.
    """
    if log.read(batch_id) or recent(log, batch_id):
        return
    raise CheckpointRefused(
        f"{place} has open transactions, and the decision log that was asked has no record of it "
        f"up to batch {batch_id}: it is not the query's own, or its records are lost, so nobody "
        "can tell what is decided. Say where it is by --decision-log, as the query is told by "
        "decision_log=; without it where the query has none. Nothing was changed."
    )


def refuse_lost(query_id: str, batch_id: int, log: DecisionLog, each: Each) -> list[DecisionRecord]:
    """Refuse to begin with ``batch_id`` where a target has committed what no record from there on
    names. Returns the records of the batches before it (see ``recent``).

    Raises:
        CheckpointRefused: such a commit is there.
        ExactumError: as ``DecisionLog.read`` and ``Participant.list_committed``.
    """
    _refuse_later(query_id, batch_id, log, each)
    this = log.read(batch_id)
    earlier = recent(log, batch_id)
    if resolve.standing_commit(this) is not None:
        # what became of its transactions redelivery finds out: somebody may have taken their names
        # since
        return earlier
    last = [r for r in earlier if r.epoch.batch_id == batch_id - 1]
    is_gap = batch_id > 0 and resolve.standing_commit(last) is None
    before = [*this, *earlier]
    if not before:
        return earlier
    # What an incarnation's tasks wrote is of its fence's batch or of a later one, and the records
    # of those were read.
    incarnations = {r.incarnation for r in before if r.decision is Decision.ABORT}
    named = [p for record in before for p in record.prepared]

    def of(participant: Participant) -> Sequence[Sighting]:
        return participant.list_committed(
            incarnations, [p for p in named if p.participant == participant.name]
        )

    committed = [s for seen in each(of) for s in seen]
    gone = resolve.leftovers(committed, before)
    if gone:  # or decided by an incarnation that lives, since the records were read
        gone = resolve.leftovers(gone, _from(log, batch_id))
    if gone:
        first = gone[0]
        count = "a transaction" if len(gone) == 1 else f"{len(gone)} transactions"
        if is_gap:
            raise CheckpointRefused(
                f"The decision log of query {query_id} has lost the decision of batch "
                f"{batch_id - 1}, and sink {first.participant!r} has committed {count} that no "
                f"record names: {first.identity}. They are of that batch, or already of batch "
                f"{batch_id}, which would then be written twice. A database failed over to a "
                "standby without the newest decisions, or a file of the log was lost. Look "
                f"whether the rows of batch {batch_id} are in the target. If they are not, give "
                "the sink another name (for Kafka: another transactional_id_prefix) and start "
                "again; else restore the log, or start with a new checkpoint location after them. "
                "Nothing was written."
            )
        raise CheckpointRefused(
            f"Sink {first.participant!r} has committed {count} for {Epoch(query_id, batch_id)} or "
            f"a later one, and the decision log does not know of it: {first.identity}. To run the "
            "epoch again would write its rows twice. The checkpoint or its decision log was "
            "restored from an older copy, or lost a file. Restore both from the same moment, or "
            "start with a new checkpoint location; docs/guarantees.md says more. Nothing was "
            "written."
        )
    return earlier


def _refuse_later(query_id: str, batch_id: int, log: DecisionLog, each: Each) -> None:
    """The same of targets that keep the last batch they have."""

    def of(participant: Participant) -> tuple[int, str]:
        last = participant.last_decided() if isinstance(participant, Remembering) else None
        return (-1 if last is None else last), participant.name

    last, name = max(each(of), default=(-1, ""))
    # What an incarnation that lives has decided meanwhile stands on record by now.
    if last < batch_id or resolve.standing_commit(log.read(last)) is not None:
        return
    raise CheckpointRefused(
        f"Sink {name!r} has batch {last} of query {query_id} already, and the decision log does "
        f"not know of it: its next one is batch {batch_id}. The checkpoint or its decision log was "
        "restored from an older copy, or lost a file, or two queries run on copies of one "
        "checkpoint. Restore both and the target from the same moment, or start with a new "
        "checkpoint location; docs/guarantees.md says more. Nothing was written, and nothing was "
        "aborted."
    )


def _from(log: DecisionLog, batch_id: int) -> list[DecisionRecord]:
    records: list[DecisionRecord] = []
    while found := log.read(batch_id):
        records.extend(found)
        batch_id += 1
    return records
