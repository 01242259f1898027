"""One task's transaction as it travels: in a ``PreparedTransaction``'s payload and in a
``Sighting``'s. Pure values.

The payload says how the transaction is to be finished, whatever the settings are by then: a query
may be started again with another mechanism or mode while an epoch is decided but not finished.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from exactum.errors import InvariantBroken
from exactum.protocol.model import Incarnation, PreparedTransaction, Sighting
from exactum.sql.dialect import Mode, RowMove
from exactum.sql.ledger import StagedPart
from exactum.sql.plan import Mechanism, SqlScope, WritePlan
from exactum.sql.table import TableName


@dataclass(frozen=True)
class StagedMove:
    """How staged rows get into the target. ``staging``'s own columns are the ones that are
    written.
    """

    staging: TableName
    mode: Mode
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    delete_when: str | None

    def with_parts(
        self, target: TableName, columns: tuple[str, ...], parts: tuple[int, ...]
    ) -> RowMove:
        return RowMove(
            self.staging,
            target,
            columns,
            self.mode,
            self.key,
            self.order_by,
            self.delete_when,
            parts,
        )


@dataclass(frozen=True)
class SqlTransaction:
    """``part`` and ``move`` are those of the staged mechanism. The identity of a prepared one is
    its gid.
    """

    identity: str
    batch_id: int
    attempt: int
    target: TableName
    at: str
    part: int = 0
    move: StagedMove | None = None

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism.PREPARED if self.move is None else Mechanism.STAGED

    def prepared(self, participant: str, rows: int) -> PreparedTransaction:
        value: dict[str, object] = {
            "mechanism": self.mechanism.value,
            "batch_id": self.batch_id,
            "attempt": self.attempt,
            "target": [self.target.schema, self.target.table],
            "at": self.at,
        }
        if self.move is not None:
            value["part"] = self.part
            value["staging"] = self.move.staging.table
            value["mode"] = self.move.mode.value
            value["key"] = self.move.key
            value["order_by"] = self.move.order_by
            value["delete_when"] = self.move.delete_when
        return PreparedTransaction(participant, self.identity, rows, json.dumps(value))

    @staticmethod
    def of(prepared: PreparedTransaction) -> SqlTransaction:
        """
        Raises:
            InvariantBroken: the payload is not one of ours.
        """
        try:
            value = json.loads(prepared.payload)
            target = TableName(*value["target"])
            mechanism = Mechanism(value["mechanism"])
            move = None
            if mechanism is Mechanism.STAGED:
                move = StagedMove(
                    staging=target.sibling(value["staging"]),
                    mode=Mode(value["mode"]),
                    key=tuple(value["key"]),
                    order_by=tuple(value["order_by"]),
                    delete_when=value["delete_when"],
                )
            return SqlTransaction(
                identity=prepared.identity,
                batch_id=int(value["batch_id"]),
                attempt=int(value["attempt"]),
                target=target,
                at=str(value["at"]),
                part=int(value.get("part", 0)),
                move=move,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvariantBroken(
                f"The payload of {prepared.identity!r} of sink {prepared.participant!r} is damaged "
                f"({type(error).__name__}: {error}). Keep the decision log as it is and report "
                "this."
            ) from error


def staged_transaction(
    plan: WritePlan, incarnation: Incarnation, batch_id: int, attempt: int
) -> SqlTransaction:
    """A new one with an identity and a part that nobody else ever has."""
    token = secrets.token_hex(8)
    move = plan.move(())
    return SqlTransaction(
        identity=f"{incarnation}:{token}",
        batch_id=batch_id,
        attempt=attempt,
        target=plan.target,
        at=plan.address.where,
        part=int(token, 16) >> 1,
        move=StagedMove(move.staging, move.mode, move.key, move.order_by, move.delete_when),
    )


def prepared_transaction(
    plan: WritePlan, incarnation: Incarnation, batch_id: int, attempt: int
) -> SqlTransaction:
    """A new one whose gid nobody else ever has."""
    gid = plan.scope.gid(incarnation, secrets.token_hex(8))
    return SqlTransaction(gid, batch_id, attempt, plan.target, plan.address.where)


def staged_sighting(participant: str, part: StagedPart) -> Sighting:
    payload = {"staging": [part.staging.schema, part.staging.table], "part": part.part}
    return Sighting(participant, part.identity, part.incarnation, json.dumps(payload))


def prepared_sighting(participant: str, scope: SqlScope, gid: str) -> Sighting | None:
    """None when the gid is not one of this scope."""
    incarnation = scope.incarnation_of(gid)
    return None if incarnation is None else Sighting(participant, gid, incarnation)


def staged_part(sighting: Sighting) -> tuple[TableName, int] | None:
    """Where the sighted transaction's rows are staged; None for one that is prepared on the
    server.
    """
    value = json.loads(sighting.payload)
    return (TableName(*value["staging"]), int(value["part"])) if "part" in value else None
