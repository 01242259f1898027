"""What goes to the executors: where rows are written, how, and on whose behalf. Pure values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from exactum.protocol.scope import Scope
from exactum.sinks.staging import Staging
from exactum.sql.dialect import Dialect, Mode
from exactum.sql.table import Column, TableName
from exactum.sql.url import Address

READABLE_MAX = 80
"""How much of the query id and of the participant's name a scope shows to a person."""


@dataclass(frozen=True)
class SqlScope(Scope):
    """How a database's ledger names it."""

    @property
    def text(self) -> str:
        """ASCII, at most 200 characters: a part that a person can read, and one that is unique."""
        readable = re.sub(r"[^0-9A-Za-z:._-]", "_", f"{self.query_id[:36]}/{self.participant[:40]}")
        return f"{readable[:READABLE_MAX]}#{self.digest[:32]}"


@dataclass(frozen=True)
class WritePlan:
    """Picklable and hashable.

    columns: the target's columns that are written, in the frame's order, without ``flag``.
    frame_columns: the frame's names for them.
    named_by: the frame's columns whose values name a row in messages.
    flag: the boolean column for ``delete_when`` of what is loaded, and ``flag_column`` the frame's
    name for it; or None.
    staging: where tasks leave their rows.
    load_facts: what the dialect's encoder has to know of the server, as (name, value).
    """

    dialect: Dialect
    address: Address
    scope: SqlScope
    target: TableName
    staging: Staging
    columns: tuple[Column, ...] = ()
    frame_columns: tuple[str, ...] = ()
    flag: Column | None = None
    flag_column: str | None = None
    mode: Mode = Mode.APPEND
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()
    load_facts: tuple[tuple[str, Any], ...] = ()

    @property
    def shown(self) -> str:
        """The sink and its database, for the driver's messages."""
        return f"sink {self.scope.participant!r} at {self.address.where}"

    @property
    def is_judged(self) -> bool:
        """Whether only the server knows of some rows whether it takes them."""
        return any(column.judged for column in self.columns)

    @property
    def loaded_columns(self) -> tuple[Column, ...]:
        """What a staged file has, in this order."""
        return self.columns if self.flag is None else (*self.columns, self.flag)
