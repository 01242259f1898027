"""The driver half of every sink whose rows wait in staged files: the driver brings them into the
target, together with a marker, at most once whoever asks and how often.

    judge     where only the target knows which rows it takes: those that it refuses are put aside
    verify    every file is there; ``hold``: all that can be done before the decision is done
    COMMIT    is recorded by the coordinator
    commit    ``publish``: the rest; after a crash all of it again, from the files

What the target refuses is refused by ``hold``, before the decision, and so never stands in the way
of an epoch that is decided.

| what dies | what is left | who repairs it |
|---|---|---|
| a task, a speculative twin, a zombie | a file that no record names | the next attempt's sweep |
| the driver before the decision | no record; nothing is held | the next start: ABORT, sweep |
| the driver after the record | files; the marker below the batch | redelivery: ``publish`` |
| driver or server at the publishing | the marker tells | redelivery |
| a file, removed after the decision | MISSING | nobody: ``HeuristicOutcome`` names it |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

from exactum.errors import (
    CheckpointRefused,
    ExactumError,
    HeuristicOutcome,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)
from exactum.protocol.sink import Rejection
from exactum.sinks.staging import StagedName, Staging, gone

BATCHES_KEPT = 4
"""How many decided batches keep their files; as many as a start compares."""
NAMED_MAX = 20
"""How many missing files a message names."""


class Published(Enum):
    """What a target says of an epoch."""

    DONE = "its rows are in the target, with its marker"
    BEFORE = "they were there before"
    OTHER = "the target has this batch from other files"
    OVERTAKEN = "the target has a later batch"
    MISSING = "a staged file is gone"


class PublishFailed(Exception):
    """``publish`` or ``hold`` failed. ``is_transient``: the same again may succeed."""

    def __init__(self, text: str, *, is_transient: bool) -> None:
        super().__init__(text)
        self.is_transient = is_transient


@dataclass(frozen=True)
class StagedPart:
    """What one task has staged, as its decision record has it. ``at`` is where its target was, and
    ``facts`` what else there is to know of that by the record alone. ``aside`` are the rows of the
    file, counted from 0, that are not for the target: it has refused them.
    """

    prepared: PreparedTransaction
    name: StagedName
    size_bytes: int
    at: str
    facts: Mapping[str, Any]
    aside: tuple[int, ...] = ()

    @staticmethod
    def payload(
        size_bytes: int, at: str, facts: Mapping[str, Any], aside: Sequence[int] = ()
    ) -> str:
        """JSON text for a ``PreparedTransaction``."""
        return json.dumps({"bytes": size_bytes, "at": at, "facts": facts, "aside": aside})

    @staticmethod
    def of(prepared: PreparedTransaction) -> StagedPart:
        """
        Raises:
            InvariantBroken: it is none of a staged sink.
        """
        name = StagedName.parse(prepared.identity)
        try:
            if name is None:
                raise ValueError("its identity is no name of a staged file")
            value = json.loads(prepared.payload)
            return StagedPart(
                prepared,
                name,
                int(value["bytes"]),
                str(value["at"]),
                dict(value["facts"]),
                tuple(map(int, value["aside"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvariantBroken(
                f"The decision record holds a transaction {prepared.identity} of sink "
                f"{prepared.participant!r} that is not staged in a file ({type(error).__name__}: "
                f"{error}). Was the sink of this name another one before? Start the query once "
                "more with that one, then change it."
            ) from error

    @property
    def file_rows(self) -> int:
        """Of the whole file."""
        return self.prepared.rows + len(self.aside)

    def without(self, aside: Sequence[int]) -> StagedPart:
        """Only these rows of the file are not for the target."""
        payload = self.payload(self.size_bytes, self.at, self.facts, aside)
        rows = self.file_rows - len(aside)
        prepared = replace(self.prepared, rows=rows, payload=payload)
        return replace(self, prepared=prepared, aside=tuple(aside))


@dataclass(frozen=True)
class StagedEpoch:
    """The parts of one batch, in the order of their tasks. At least one."""

    parts: tuple[StagedPart, ...]

    @staticmethod
    def of(prepared: Sequence[PreparedTransaction]) -> StagedEpoch:
        parts = [StagedPart.of(p) for p in prepared]
        return StagedEpoch(tuple(sorted(parts, key=lambda p: (p.name.task, p.name.identity))))

    @property
    def batch_id(self) -> int:
        return self.parts[0].name.batch_id

    @property
    def attempt(self) -> int:
        return self.parts[0].name.attempt

    @property
    def rows(self) -> int:
        return sum(part.prepared.rows for part in self.parts)

    @cached_property
    def digest(self) -> str:
        """Names the rows that these files bring: the same for every order, other for any other."""
        text = "\n".join(sorted(f"{part.name.identity} {[*part.aside]}" for part in self.parts))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class StagedTarget(Protocol):
    """All that a staged sink's driver half writes of its own. Used by one thread at a time."""

    @property
    def shown(self) -> str:
        """The sink and where its target is, for messages; without secrets."""

    @property
    def at(self) -> str:
        """Where the target is, whoever the user: the same text for the same place."""

    def last_batch(self, committed: Sequence[PreparedTransaction]) -> int | None:
        """See ``Remembering.last_batch``: the marker, which moves with the rows."""

    def forget_batches(self) -> None:
        """See ``Remembering.forget_batches``."""

    def published(self, epoch: StagedEpoch) -> Published:
        """By the marker alone: BEFORE, OTHER, OVERTAKEN, or MISSING where it has not come so far.
        Changes nothing.
        """

    def hold(self, epoch: StagedEpoch) -> Published:
        """Everything but the last step, which makes rows and marker visible. DONE: it is held; else
        nothing is. Idempotent: what was held before of another epoch is undone.

        Raises:
            RowsRefused: the target refuses rows.
            ExactumError: likewise, for other reasons; nothing is held.
        """

    def publish(self, epoch: StagedEpoch) -> Published:
        """The epoch is decided: the last step of what is held, or all of it from the files.
        Idempotent.

        Raises:
            PublishFailed: it may or may not be visible; the same again finds out.
        """

    def deliver(self, epoch: StagedEpoch) -> None:
        """Make the rows visible without a marker: for the weaker guarantees.

        Raises:
            ExactumError: they may or may not be visible.
        """

    def let_go(self) -> None:
        """Undo what is held. Idempotent."""

    def by_hand(self, epoch: StagedEpoch) -> str:
        """How a person tells the target that the rows of a decided epoch were loaded by hand."""

    def waiting(self, name: StagedName) -> str:
        """What there is to say of a file that waits, to an operator; may be empty."""

    def close(self) -> None:
        """Let go of connections."""


class JudgingTarget(StagedTarget, Protocol):
    """A target that alone knows of some rows whether it takes them."""

    def judge(self, epoch: StagedEpoch) -> tuple[StagedEpoch, Rejection | None]:
        """``hold`` the epoch without the rows that it can never take; returns what is held, and
        these rows. Where it cannot be held for another reason, nothing is, and ``hold`` says why.

        Raises:
            RowsRefused: there are too many of them, or rows break a rule that others are part of.
            ExactumError: as ``hold``.
        """


class StagedParticipant:
    """Participant of one staged sink in one run of a query; see ``protocol.participant``."""

    def __init__(self, staging: Staging, target: StagedTarget) -> None:
        self._staging = staging
        self._target = target
        self._settled: int | None = None

    @property
    def name(self) -> str:
        return self._staging.scope.participant

    @property
    def target(self) -> StagedTarget:
        return self._target

    def list_open(self) -> Sequence[Sighting]:
        return [
            Sighting(self.name, name.identity, name.incarnation)
            for name in self._staging.sizes()
            if name.batch_id > self._settled_to()
        ]

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """None: the target's marker tells."""
        return ()

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """See ``Remembering``. Files of batches behind it wait again."""
        has = self._target.last_batch(committed)
        noted = self._staging.published() if has is None else has
        self._settled = -1 if noted is None else noted
        return has

    def forget_batches(self) -> None:
        self._target.forget_batches()
        self._settled = None

    def abort(self, transactions: Sequence[Sighting]) -> None:
        self._target.let_go()
        self._staging.remove([t.identity for t in transactions])

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        epoch = StagedEpoch.of(prepared)
        if missing := self._missing(epoch):
            raise gone(self._staging.path(missing[0].name.identity))
        state = self._target.hold(epoch)
        if state is Published.MISSING:
            raise gone(self._staging.where)
        if state is not Published.DONE:
            raise self._had_before(epoch)
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        epoch = StagedEpoch.of(prepared)
        self._refuse_moved(permit, epoch)
        try:
            state = self._target.publish(epoch)
        except PublishFailed as failure:
            raise self._not_published(permit, failure) from failure
        if state is Published.MISSING:
            return CommitReport((), tuple(prepared))
        if state not in (Published.DONE, Published.BEFORE):
            raise HeuristicOutcome(
                "TARGET_DIFFERS",
                f"{permit.record.epoch} is decided, but at {self._target.shown} {state.value}. Its "
                f"{epoch.rows} rows are still staged in {self._staging.where}.\nA copied "
                "checkpoint runs beside this one, or the target was restored or changed. Compare "
                "the two; docs/guarantees.md says how to go on.",
            )
        self._keep(epoch.batch_id)
        return CommitReport(tuple(prepared), ())

    def deliver(self, prepared: Sequence[PreparedTransaction]) -> None:
        """See ``Delivering``."""
        epoch = StagedEpoch.of(prepared)
        self._target.deliver(epoch)
        self._staging.remove([p.identity for p in prepared])

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """There is no second copy of a staged file: says what is gone, and stops.

        Raises:
            SettingRefused: they were staged for another place than the sink's.
            HeuristicOutcome: else.
        """
        epoch = StagedEpoch.of(expired)
        missing = self._missing(epoch) or list(epoch.parts)
        named = ", ".join(
            f"{self._staging.path(part.name.identity)} with {part.prepared.rows} rows"
            for part in missing[:NAMED_MAX]
        )
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        lost = (
            f"{permit.record.epoch} is decided, and nothing of it is at {self._target.shown}: "
            f"staged files are gone: {named}{more}."
        )
        if elsewhere := self._elsewhere(epoch):
            raise _moved(lost, elsewhere)
        raise HeuristicOutcome(
            "STAGED_GONE",
            f"{lost}\nThe decision record has the source offsets: load the missing rows by hand, "
            f"then tell exactum that they are there: {self._target.by_hand(epoch)}",
        )

    def close(self) -> None:
        self._target.let_go()
        self._target.close()

    # ---- small steps -------------------------------------------------------------------------

    def _settled_to(self) -> int:
        """Up to this batch nothing waits: the target has it, or, where the target has no trace of
        the query, had it before.
        """
        if self._settled is None:
            self.last_batch()
        return -1 if self._settled is None else self._settled

    def _keep(self, batch_id: int) -> None:
        """The batch is visible. Its files stay for a while, for a target that loses it (a failover,
        an older copy): then they wait again.
        """
        if self._settled is None or batch_id > self._settled:
            self._settled = batch_id
            self._staging.note_published(batch_id)
        self._staging.forget_up_to(batch_id - BATCHES_KEPT)

    def _missing(self, epoch: StagedEpoch) -> list[StagedPart]:
        sizes = self._staging.sizes()
        return [part for part in epoch.parts if sizes.get(part.name) != part.size_bytes]

    def _elsewhere(self, epoch: StagedEpoch) -> str:
        """The place that the rows were staged for, where the target is not, by its name."""
        return next((part.at for part in epoch.parts if part.at != self._target.at), "")

    def _refuse_moved(self, permit: CommitPermit, epoch: StagedEpoch) -> None:
        """The former target may have had its COMMIT: rows that go to another one would be in both.
        One by another name knows the query.
        """
        elsewhere = self._elsewhere(epoch)
        if elsewhere and self._target.last_batch(permit.record.prepared) is None:
            raise _moved(
                f"{permit.record.epoch} is decided, and {self._target.shown} has no batch of the "
                "query.",
                elsewhere,
            )

    def _had_before(self, epoch: StagedEpoch) -> CheckpointRefused:
        scope = self._staging.scope
        return CheckpointRefused(
            "TARGET_AHEAD",
            f"{self._target.shown} has batch {epoch.batch_id} of query {scope.query_id} already, "
            "or a later one, and the decision log does not.\nCheckpoint or log are an older copy, "
            "or two queries run on copies of one. Nothing was written.\nRestore both and the "
            "target from the same moment, or start with a new checkpoint location.",
        )

    def _not_published(self, permit: CommitPermit, failure: PublishFailed) -> ExactumError:
        if failure.is_transient:
            return OutcomeUnknown(
                f"{permit.record.epoch} is decided, and {self._target.shown} could not be asked to "
                f"commit it: {failure}. Start the query again: it commits it, or finds that it is "
                "committed."
            )
        return HeuristicOutcome(
            "TARGET_REFUSES",
            f"{permit.record.epoch} is decided, and the target does not carry it out: "
            f"{self._target.shown}: {failure}.\nThe rows are kept in {self._staging.where} and "
            "nothing is lost.\nRemove what is in the way (a row with the same key that somebody "
            "else wrote since, a missing right, a changed table), then start the query again.",
        )


class JudgingParticipant(StagedParticipant):
    """Likewise; see ``protocol.participant.Judging``."""

    def __init__(self, staging: Staging, target: JudgingTarget) -> None:
        super().__init__(staging, target)
        self._judge = target.judge

    def judge(
        self, prepared: Sequence[PreparedTransaction]
    ) -> tuple[Sequence[PreparedTransaction], Rejection | None]:
        epoch, rejection = self._judge(StagedEpoch.of(prepared))
        return [part.prepared for part in epoch.parts], rejection


def _moved(what: str, elsewhere: str) -> SettingRefused:
    return SettingRefused(
        "SINK_MOVED",
        f"{what}\nIts rows were staged for {elsewhere}. Point the sink back and start until this "
        "batch is done, then change it.",
    )
