"""The values of the protocol: what an epoch is, what was prepared, what was decided.

All of them are frozen, compare by value and have no behaviour beyond checking themselves. The state
of an epoch is derived from the decision records (see ``resolve``), never stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Any, NewType

from exactum.errors import CheckpointRefused, InvariantBroken

Incarnation = NewType("Incarnation", str)
"""One run of the coordinator: 16 hexadecimal digits. The first six are which run of its checkpoint
it is, counted in the query's record (0: not counted); the others are random. A copy of a checkpoint
counts on from where it was made, and so meets the transactions of runs that it does not know.
"""
RUN_DIGITS = 6

RECORD_VERSION = 1
"""Version of the decision record's fields; a higher one on storage is refused, not guessed at."""


def new_incarnation(run: int = 0) -> Incarnation:
    """A fresh id of the run of this number."""
    return Incarnation(f"{run:0{RUN_DIGITS}x}"[-RUN_DIGITS:] + secrets.token_hex(5))


def run_number(incarnation: Incarnation) -> int:
    """Which run of its checkpoint it is; 0: it is not counted."""
    return int(incarnation[:RUN_DIGITS], 16)


@dataclass(frozen=True, order=True)
class Epoch:
    """The unit of atomic commit: one micro-batch of one query."""

    query_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"epoch {self.batch_id} of query {self.query_id}"


@dataclass(frozen=True)
class SourceOffsets:
    """What the micro-batch read, as Spark recorded it: one JSON text for each source, or None.

    ``start`` is empty where the previous batch's offsets are no longer on record. ``files``: where
    a source's offset is only a number, a digest of what it stands for, None of the others; empty
    where there is no such source.
    """

    start: tuple[str | None, ...] = ()
    end: tuple[str | None, ...] = ()
    files: tuple[str | None, ...] = ()

    def contradicts(self, other: SourceOffsets) -> bool:
        """True when the two cannot be the same batch. Unknown (empty) parts contradict nothing."""
        pairs = (self.start, other.start), (self.end, other.end)
        files = zip(self.files, other.files, strict=False)
        return any(bool(own and theirs) and own != theirs for own, theirs in pairs) or any(
            own is not None and theirs is not None and own != theirs for own, theirs in files
        )


@dataclass(frozen=True)
class PreparedTransaction:
    """All that any process needs to finish one transaction of one participant.

    ``identity`` names this transaction and no other, ever; ``payload`` is JSON text that only the
    participant reads; ``rows`` is how many rows it carries.
    """

    participant: str
    identity: str
    rows: int
    payload: str = "{}"


@dataclass(frozen=True)
class Sighting:
    """A transaction seen open under this query's name, by whomever it was opened."""

    participant: str
    identity: str
    incarnation: Incarnation
    payload: str = "{}"


class Decision(Enum):
    """What a record says of its attempt."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class DecisionRecord:
    """What was decided in slot (epoch, attempt). Created once, never changed.

    ``supersedes`` is set by salvage only: the attempt of the COMMIT whose transactions were undone
    by a timeout and whose rows stand again in this record's ``prepared``. ``engine`` is text that
    only the engine reads: what it has to know of the epoch to go on without computing it again;
    empty where nothing was recorded.
    """

    epoch: Epoch
    attempt: int
    decision: Decision
    incarnation: Incarnation
    prepared: tuple[PreparedTransaction, ...] = ()
    offsets: SourceOffsets = field(default_factory=SourceOffsets)
    supersedes: int | None = None
    engine: str = ""

    def of(self, participant: str) -> tuple[PreparedTransaction, ...]:
        return tuple(p for p in self.prepared if p.participant == participant)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain JSON values, readable by a person with a pager."""
        return {
            "version": RECORD_VERSION,
            "query_id": self.epoch.query_id,
            "batch_id": self.epoch.batch_id,
            "attempt": self.attempt,
            "decision": self.decision.value,
            "incarnation": self.incarnation,
            "supersedes": self.supersedes,
            "offsets": {key: list(of) for key, of in vars(self.offsets).items()},
            "engine": self.engine,
            "prepared": [
                {
                    "participant": p.participant,
                    "identity": p.identity,
                    "rows": p.rows,
                    "payload": p.payload,
                }
                for p in self.prepared
            ],
        }

    @staticmethod
    def from_json(value: Mapping[str, Any], where: str) -> DecisionRecord:
        """The record in ``value``; ``where`` names its place in errors.

        Raises:
            CheckpointRefused: it was written by a newer version of exactum.
            InvariantBroken: it is damaged.
        """
        version = value.get("version")
        if isinstance(version, int) and version > RECORD_VERSION:
            raise CheckpointRefused(
                "RECORD_VERSION",
                f"The decision record {where} has version {version}; this exactum reads up to "
                f"version {RECORD_VERSION}. The query was last run by a newer exactum: install "
                "that one again. Nothing was written.",
            )
        try:
            return DecisionRecord(
                epoch=Epoch(str(value["query_id"]), int(value["batch_id"])),
                attempt=int(value["attempt"]),
                decision=Decision(value["decision"]),
                incarnation=Incarnation(str(value["incarnation"])),
                prepared=tuple(
                    PreparedTransaction(p["participant"], p["identity"], p["rows"], p["payload"])
                    for p in value["prepared"]
                ),
                offsets=SourceOffsets(**{key: tuple(of) for key, of in value["offsets"].items()}),
                supersedes=value["supersedes"],
                engine=str(value.get("engine", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvariantBroken(
                f"The decision record {where} is damaged ({type(error).__name__}: {error}). "
                "Restore it from a backup of the checkpoint folder; without it nobody can tell "
                "whether its epoch was committed."
            ) from error


GRANT = object()
"""What ``PermitLog`` makes a permit with, and nobody else."""


@dataclass(frozen=True)
class CommitPermit:
    """Proof that a COMMIT is durably recorded: ``decision_log.PermitLog`` grants it, for what
    the log has just said to stand.

    Raises:
        InvariantBroken: made in another way, or the record is an ABORT.
    """

    record: DecisionRecord
    grant: InitVar[object] = None

    def __post_init__(self, grant: object) -> None:
        if grant is not GRANT:
            raise InvariantBroken(
                f"A permit for {self.record.epoch} was made by hand. PermitLog.permit grants "
                "it for a record that stands in the decision log."
            )
        if self.record.decision is not Decision.COMMIT:
            raise InvariantBroken(f"A permit was asked for {self.record.epoch}, which is aborted.")


@dataclass(frozen=True)
class CommitReport:
    """What a participant's ``commit`` found: every transaction is in exactly one of the two."""

    committed: tuple[PreparedTransaction, ...] = ()
    expired: tuple[PreparedTransaction, ...] = ()


@dataclass(frozen=True)
class Completed:
    """The epoch stands in every sink. ``written`` is False where an earlier run had decided it;
    ``engine`` is then what its record says for the engine. ``phase_ms`` is what each phase took."""

    written: bool
    rows: int
    engine: str = ""
    phase_ms: Mapping[str, float] = field(default_factory=dict, compare=False)


def of_another_sink(prepared: PreparedTransaction | Sighting, why: str) -> InvariantBroken:
    """The sink of this name was another kind of sink when it was decided."""
    return InvariantBroken(
        f"The decision record holds a transaction {prepared.identity} of sink "
        f"{prepared.participant!r} that {why}. Was the sink of this name another one before? Start "
        "the query once more with that one, then change it."
    )


def rows_of(prepared: Sequence[PreparedTransaction]) -> int:
    return sum(p.rows for p in prepared)


def rows_by_participant(prepared: Sequence[PreparedTransaction]) -> dict[str, int]:
    found: dict[str, int] = {}
    for p in prepared:
        found[p.participant] = found.get(p.participant, 0) + p.rows
    return found
