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
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    ExactumError,
    HeuristicOutcome,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    PreparedTransaction,
    Sighting,
    of_another_sink,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Rejection
from exactum.sinks.staging import Listing, StagedName, Staging

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
class StagedFile:
    """``facts`` are its target's own: a small JSON object."""

    size_bytes: int
    rows: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class StagedPart:
    """What one task has staged, as its decision record has it. ``at`` is where its target was, and
    ``facts`` what else there is to know of that by the record alone. ``files`` are in the order of
    their numbers. ``aside`` are the rows of its one file, counted from 0, that are not for the
    target: it has refused them.
    """

    prepared: PreparedTransaction
    name: StagedName
    at: str
    facts: Mapping[str, Any]
    files: tuple[StagedFile, ...]
    aside: tuple[int, ...] = ()

    @staticmethod
    def payload(
        at: str,
        facts: Mapping[str, Any],
        files: Sequence[StagedFile],
        aside: Sequence[int] = (),
    ) -> str:
        """JSON text for a ``PreparedTransaction``."""
        listed = [[file.size_bytes, file.rows, file.facts] for file in files]
        value = {"at": at, "facts": facts, "files": listed, "aside": aside}
        return json.dumps(value, ensure_ascii=False)

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
                str(value["at"]),
                dict(value["facts"]),
                tuple(StagedFile(int(s), int(r), dict(f)) for s, r, f in value["files"]),
                tuple(map(int, value["aside"])),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"is not staged in files ({type(error).__name__}: {error})"
            raise of_another_sink(prepared, why) from error

    @property
    def file_rows(self) -> int:
        """Of all that its files hold."""
        return self.prepared.rows + len(self.aside)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of its files, by their names."""
        return {self.name.file(n): file.size_bytes for n, file in enumerate(self.files)}

    def without(self, aside: Sequence[int]) -> StagedPart:
        """Only these rows of the file are not for the target."""
        payload = self.payload(self.at, self.facts, self.files, aside)
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
    def sizes(self) -> Mapping[str, int]:
        """See ``StagedPart.sizes``."""
        return {name: size for part in self.parts for name, size in part.sizes.items()}

    @cached_property
    def digest(self) -> str:
        """Names the rows that these files bring: the same for every order, other for any other."""
        text = "\n".join(sorted(f"{part.name.identity} {[*part.aside]}" for part in self.parts))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class StagedTarget(ABC):
    """All that a staged sink's driver half writes of its own. Used by one thread at a time.

    ``staging``: where its files wait. ``shown``: the sink and where its target is, for messages;
    without secrets. ``at``: where the target is, whoever the user: the same text for the same
    place; empty where nobody can say. ``takes_files``: ``publish`` takes the files themselves,
    which lie at the target's own place: then none is left for a target that loses its last batches,
    and all that lies there waits.

    The marker is kept by ``last_batch``, ``forget_batches`` and ``published``. As they are here it
    is the staging's note (``Staging.note_published``), which ``publish`` makes when all rows are
    in: for a target that can keep none of its own, and takes the same rows again without harm.
    """

    takes_files = False
    judges = False
    """See ``Participant.judges``."""

    def __init__(self, staging: Staging, at: str = "") -> None:
        self.staging = staging
        self.at = at
        name = f"sink {staging.scope.participant!r}"
        self.shown = f"{name} at {at}" if at else name

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """See ``Participant.last_batch``: the marker, which moves with the rows."""
        return self.staging.published()

    def forget_batches(self, first: int = 0) -> None:
        """See ``Participant.forget_batches``."""
        self.staging.forget_published()

    def published(self, epoch: StagedEpoch) -> Published:
        """Where the files are not staged: BEFORE, OTHER, OVERTAKEN, or MISSING where the target has
        not come so far. Changes nothing.
        """
        noted = self.staging.published()
        is_there = noted is not None and noted >= epoch.batch_id
        return Published.BEFORE if is_there else Published.MISSING

    def lost(self, epoch: StagedEpoch, names: Collection[str]) -> Collection[str]:
        """Which of these files, that are not staged, are not in the target either: all."""
        return names

    def hold(self, epoch: StagedEpoch) -> Published:
        """Everything but the last step, which makes rows and marker visible; the files are there.
        DONE: it is held; else nothing is. Idempotent: what was held before of another epoch is
        undone. As it is here nothing can be tried out without being seen.

        Raises:
            RowsRefused: the target refuses rows.
            ExactumError: likewise, for other reasons; nothing is held.
        """
        state = self.published(epoch)
        return Published.DONE if state is Published.MISSING else state

    def judge(self, epoch: StagedEpoch) -> tuple[StagedEpoch, Rejection | None]:
        """Before ``hold``, or ``deliver``, where it ``judges``: hold the epoch without the rows
        that it can never take; returns what is held, and these rows. Where it cannot be held for
        another reason, nothing is, and ``hold`` says why.

        Raises:
            RowsRefused: there are too many of them, or rows break a rule that others are part of.
            ExactumError: as ``hold``.
        """
        return epoch, None

    @abstractmethod
    def publish(self, epoch: StagedEpoch) -> Published:
        """The epoch is decided: the last step of what is held, or all of it from the files. The
        marker is made with the rows, or after them. Idempotent.

        Raises:
            PublishFailed: it may or may not be visible; the same again finds out.
        """

    @abstractmethod
    def deliver(self, epoch: StagedEpoch) -> None:
        """Make the rows visible without a marker: for the weaker guarantees. The files are there.

        Raises:
            FileNotFoundError: one is not any more.
            ExactumError: they may or may not be visible.
        """

    def let_go(self) -> None:  # noqa: B027  (most hold nothing)
        """Undo what is held. Idempotent."""

    def waiting(self, name: StagedName) -> str:
        """What there is to say of a file that waits, to an operator; may be empty."""
        return ""

    def close(self) -> None:  # noqa: B027
        """Let go of connections."""


class MovingTarget(StagedTarget):
    """A target whose own the staged files become, by a move within one storage, done once by
    whoever tries.
    """

    takes_files = True

    @abstractmethod
    def place_of(self, part: StagedPart, number: int) -> str:
        """Where readers look for this file of a part, below the storage's root."""

    def lost(self, epoch: StagedEpoch, names: Collection[str]) -> Collection[str]:
        """A file moves from its staging only, so it cannot slip through between two readings."""
        moves = self._moves(epoch)
        there = self.staging.storage.existing([moves[name] for name in names if name in moves])
        return [name for name in names if moves.get(name) not in there]

    def _move(self, epoch: StagedEpoch) -> bool:
        """False: it is not whole."""
        folder = self.staging.folder
        moves = [(f"{folder}/{name}", to) for name, to in self._moves(epoch).items()]
        return all(self.staging.storage.move_if_absent(moves))

    def _moves(self, epoch: StagedEpoch) -> Mapping[str, str]:
        return {
            part.name.file(number): self.place_of(part, number)
            for part in epoch.parts
            for number in range(len(part.files))
        }

    def _staged_here(self, committed: Sequence[PreparedTransaction]) -> Sequence[StagedPart]:
        return staged_for(committed, self.at)


def staged_for(committed: Sequence[PreparedTransaction], at: str | None) -> Sequence[StagedPart]:
    """What was staged for this very place, if all of it was: a sink that was moved has its markers
    elsewhere, and one of this name may have been of another kind. None: for any place.
    """
    try:
        parts = [StagedPart.of(p) for p in committed]
    except InvariantBroken:
        return ()
    return parts if at is None or {part.at for part in parts} == {at} else ()


class StagedParticipant(Participant):
    """Participant of one staged sink in one run of a query; see ``protocol.participant``."""

    remembers = True

    def __init__(self, target: StagedTarget) -> None:
        self.judges = target.judges
        self._staging = target.staging
        self._target = target
        self._settled: int | None = None
        self._names: set[str] = set()  # of places, whose batches the target has
        self._verified: Listing | None = None
        self._opened: Listing | None = None

    @property
    def name(self) -> str:
        return self._staging.scope.participant

    @property
    def target(self) -> StagedTarget:
        return self._target

    def list_open(self) -> Sequence[Sighting]:
        """Right after ``verify`` what that one has listed: a listing may be older, for what came
        since is found by the next one.
        """
        listing, self._opened = self._opened or self._staging.listing(), None
        return listing.sightings(self.name, behind=self.settled_to())

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """See the port. Files of batches behind it wait again."""
        has = self._target.last_batch(committed)
        self._settled = self._staging.published() if has is None else has
        parts = staged_for(committed, None)
        self._names = {p.at for p in parts if has is not None and p.name.batch_id <= has}
        return has

    def own(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port."""
        return [p for p in prepared if staged_for([p], None)]

    def are_for_here(self, prepared: Sequence[PreparedTransaction]) -> bool:
        """See the port."""
        return bool(staged_for(prepared, self._target.at))

    def forget_batches(self, first: int = 0) -> None:
        self._target.forget_batches(first)
        self._settled = None

    def abort(self, transactions: Sequence[Sighting]) -> None:
        self._verified = self._opened = None
        self._target.let_go()
        self._staging.remove([t.identity for t in transactions])

    def judge(
        self, prepared: Sequence[PreparedTransaction]
    ) -> tuple[Sequence[PreparedTransaction], Rejection | None]:
        epoch, rejection = self._target.judge(StagedEpoch.of(prepared))
        return [part.prepared for part in epoch.parts], rejection

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        epoch = StagedEpoch.of(prepared)
        listing = self._staging.listing()
        self._refuse_missing(epoch, listing)
        state = self._target.hold(epoch)
        if state is Published.MISSING:
            raise gone(self._staging.where)
        if state is not Published.DONE:
            raise self._had_before(epoch)
        self._verified = self._opened = listing
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        epoch = StagedEpoch.of(prepared)
        self._refuse_moved(permit, epoch)
        if self._is_gone(epoch):
            return CommitReport((), tuple(prepared))
        try:
            state = self._target.publish(epoch)
        except PublishFailed as failure:
            raise self._not_published(permit, failure) from failure
        except ExactumError:
            raise
        except Exception as error:  # of a library: it may come again at each start
            text, passes = f"{type(error).__name__}: {error}", isinstance(error, OSError)
            failed = PublishFailed(text, is_transient=passes)
            raise self._not_published(permit, failed) from error
        if state is Published.MISSING:
            return CommitReport((), tuple(prepared))
        if state not in (Published.DONE, Published.BEFORE):
            raise HeuristicOutcome(
                "TARGET_DIFFERS",
                f"{permit.record.epoch} is decided, but at {self._target.shown} {state.value}. Its "
                f"{epoch.rows} rows are still staged in {self._staging.where}.\nA copied "
                "checkpoint runs beside this one, or the target was restored or changed. Compare "
                "the two; docs/operations.md says how to go on.",
            )
        self._forget(epoch)
        return CommitReport(tuple(prepared), ())

    def deliver(self, prepared: Sequence[PreparedTransaction]) -> None:
        """See the port."""
        epoch, listing = StagedEpoch.of(prepared), self._staging.listing()
        self._refuse_missing(epoch, listing)
        try:
            self._target.deliver(epoch)
        except FileNotFoundError as error:
            raise EpochAborted(
                f"{self._target.shown}: staged files of batch {epoch.batch_id} are gone. Something "
                f"else removes them from {self._staging.where}.\nRows of the batch may be visible "
                "in part. Start the query again."
            ) from error
        self._staging.remove([p.identity for p in prepared], listing)

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """There is no second copy of a staged file: says what is gone, and stops.

        Raises:
            SettingRefused: they were staged for another place than the sink's.
            HeuristicOutcome: else.
        """
        epoch = StagedEpoch.of(expired)
        lost = self._target.lost(epoch, missing(epoch, self._staging.listing())) or epoch.sizes
        rows = _rows_of(epoch)
        named = [f"{self._staging.shown(name)} with {rows[name]} rows" for name in lost]
        more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
        what = (
            f"{permit.record.epoch} is decided, and at {self._target.shown} it is not whole: "
            f"staged files are gone: {', '.join(named[:NAMED_MAX])}{more}."
        )
        if elsewhere := self._elsewhere(epoch):
            raise _moved(what, elsewhere)
        raise HeuristicOutcome(
            "STAGED_GONE",
            f"{what}\nPut them back. Or keep the batch as decided ('exactum accept --without "
            f"{self.name}'), and load what is missing by hand: docs/operations.md.",
        )

    def close(self) -> None:
        self._target.let_go()
        self._target.close()

    def settled_to(self) -> int:
        """Up to this batch nothing waits: the target has it, or, where the target has no trace of
        the query, had it before.
        """
        if self._target.takes_files:
            return -1
        if self._settled is None:
            self.last_batch()
        return -1 if self._settled is None else self._settled

    # ---- small steps -------------------------------------------------------------------------

    def _refuse_missing(self, epoch: StagedEpoch, listing: Listing) -> None:
        for name in missing(epoch, listing):
            raise gone(self._staging.shown(name), epoch.sizes[name], listing.sizes.get(name))

    def _is_gone(self, epoch: StagedEpoch) -> bool:
        """Whether the target lacks some of it, and a staged file is gone, or is cut short."""
        if self._verified is not None:  # what this run has decided was whole a moment ago
            return False
        names = missing(epoch, self._staging.listing())
        return (
            bool(names)
            and self._target.published(epoch) is Published.MISSING
            and bool(self._target.lost(epoch, names))
        )

    def _forget(self, epoch: StagedEpoch) -> None:
        """The batch is visible. Files stay for a while, for a target that loses it (a failover, an
        older copy): then they wait again.
        """
        self._settled = max(epoch.batch_id, -1 if self._settled is None else self._settled)
        listing = self._verified or self._staging.listing()
        self._verified = self._opened = None
        taken = self._target.takes_files
        last = epoch.batch_id - (0 if taken else BATCHES_KEPT)
        self._staging.forget(listing, last, but=epoch.sizes if taken else ())

    def _elsewhere(self, epoch: StagedEpoch) -> str:
        """The place that the rows were staged for, where the target is not, by its name."""
        return next((part.at for part in epoch.parts if part.at != self._target.at), "")

    def _refuse_moved(self, permit: CommitPermit, epoch: StagedEpoch) -> None:
        """The former target may have had its COMMIT: in another one the rows would be twice. One by
        another name has what was staged for that name. Files that are taken move with it.
        """
        elsewhere = "" if self._target.takes_files else self._elsewhere(epoch)
        if elsewhere and elsewhere not in self._names:
            raise _moved(
                f"{permit.record.epoch} is decided, and {self._target.shown} has no batch of the "
                "query that was staged for the same place.",
                elsewhere,
            )

    def _had_before(self, epoch: StagedEpoch) -> CheckpointRefused:
        return CheckpointRefused(
            "TARGET_AHEAD",
            f"{self._target.shown} has batch {epoch.batch_id} of query "
            f"{self._staging.scope.query_id} already, or a later one, and the decision log does "
            "not.\nCheckpoint or log are an older copy, or two queries run on copies of one. "
            "Nothing was written.\nRestore both and the target from the same moment, or start with "
            "a new checkpoint location.",
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
            f"{self._target.shown}: {str(failure).rstrip('.')}.\nThe rows are kept in "
            f"{self._staging.where} and nothing is lost.\nRemove what is in the way (a "
            "row with the same key that somebody else wrote since, a missing right, a changed "
            "table), then start the query again.",
        )


def _moved(what: str, elsewhere: str) -> SettingRefused:
    return SettingRefused(
        "SINK_MOVED",
        f"{what}\nIts rows were staged for {elsewhere}. Point the sink back and start until this "
        "batch is done, then change it.",
    )


def missing(epoch: StagedEpoch, listing: Listing) -> list[str]:
    """Files that are not there with all their bytes."""
    return [name for name, size in epoch.sizes.items() if listing.sizes.get(name) != size]


def _rows_of(epoch: StagedEpoch) -> Mapping[str, int]:
    return {
        name: file.rows
        for part in epoch.parts
        for name, file in zip(part.sizes, part.files, strict=True)
    }


def gone(path: str, wanted: int | None = None, there: int | None = None) -> EpochAborted:
    """A staged file is not as its task wrote it, and nothing is decided."""
    bytes_ = "" if there is None else f" ({there} bytes instead of {wanted})"
    return EpochAborted(
        f"The staged file {path} is not there as its task wrote it{bytes_}. A newer run of the "
        "query has removed it, something else removes files from the staging, or driver and "
        "executors do not share it. Nothing was committed; start the query again."
    )
