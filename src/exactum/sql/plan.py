"""What goes to the executors: where rows are written, how, and on whose behalf. Pure values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from exactum.errors import InvariantBroken
from exactum.protocol.model import Incarnation
from exactum.protocol.scope import Scope
from exactum.sql.dialect import STAGING_PREFIX, Dialect, Mode, RowMove
from exactum.sql.table import Column, TableName
from exactum.sql.url import Address

READABLE_MAX = 80
"""How much of the query id and of the participant's name a scope shows to a person."""
_WORD = re.compile(r"[0-9a-z]{1,16}")


class Mechanism(Enum):
    """How a transaction is kept until the decision: in a staging table, or by the server."""

    STAGED = "staged"
    PREPARED = "prepared"


@dataclass(frozen=True)
class SqlScope(Scope):
    """Its text, tables and gid prefix in a database."""

    @property
    def text(self) -> str:
        """ASCII, at most 200 characters: a part that a person can read, and one that is unique."""
        readable = re.sub(r"[^0-9A-Za-z:._-]", "_", f"{self.query_id[:36]}/{self.participant[:40]}")
        return f"{readable[:READABLE_MAX]}#{self.digest[:32]}"

    @property
    def gid_prefix(self) -> str:
        return f"exactum_{self.digest[:20]}_"

    def gid(self, incarnation: Incarnation, token: str) -> str:
        """At most 62 characters of [0-9a-z_], so that every server takes it.

        Raises:
            InvariantBroken: the incarnation is not one of ours.
        """
        if not _WORD.fullmatch(incarnation) or not _WORD.fullmatch(token):
            raise InvariantBroken(
                f"{incarnation!r} or {token!r} cannot be part of a transaction's name."
            )
        return f"{self.gid_prefix}{incarnation}_{token}"

    def incarnation_of(self, gid: str) -> Incarnation | None:
        """Whose transaction of this scope it is; None when it is of another scope."""
        parts = (
            gid.removeprefix(self.gid_prefix).split("_") if gid.startswith(self.gid_prefix) else []
        )
        return Incarnation(parts[0]) if len(parts) == 2 else None

    @property
    def staging_prefix(self) -> str:
        return f"{STAGING_PREFIX}{self.digest[:16]}_"

    def staging(self, target: TableName, columns: Sequence[Column]) -> TableName:
        """The staging table for these columns: other columns or types, another table, so that none
        is ever altered.
        """
        shape = json.dumps([[c.name, c.identity] for c in columns])
        return target.sibling(self.staging_prefix + hashlib.sha256(shape.encode()).hexdigest()[:8])


@dataclass(frozen=True)
class WritePlan:
    """Picklable and hashable. ``where`` names the sink in messages.

    columns: the target's columns that are written, in the frame's order, without ``flag``.
    frame_columns: the frame's names for them.
    named_by: the frame's columns whose values name a row in messages.
    flag: the boolean staging column for ``delete_when``, and ``flag_column`` the frame's name for
    it; or None.
    """

    dialect: Dialect
    address: Address
    where: str
    scope: SqlScope
    target: TableName
    columns: tuple[Column, ...]
    frame_columns: tuple[str, ...]
    flag: Column | None
    flag_column: str | None
    mechanism: Mechanism
    mode: Mode
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    named_by: tuple[str, ...]
    lock_timeout_s: float

    @property
    def shown(self) -> str:
        """The sink and its database, for the driver's messages."""
        return f"sink {self.scope.participant!r} at {self.address.where}"

    @property
    def staged_columns(self) -> tuple[Column, ...]:
        return self.columns if self.flag is None else (*self.columns, self.flag)

    @property
    def staging(self) -> TableName:
        return self.scope.staging(self.target, self.staged_columns)

    def move(self, parts: Sequence[int]) -> RowMove:
        """What brings these parts' rows from staging into the target."""
        return RowMove(
            staging=self.staging,
            target=self.target,
            columns=tuple(c.name for c in self.columns),
            mode=self.mode,
            key=self.key,
            order_by=self.order_by,
            delete_when=None if self.flag is None else self.flag.name,
            parts=tuple(parts),
        )
