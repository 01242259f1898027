"""What goes to the executors: where rows are written, how, and on whose behalf; and how one task's
rows become frames of a staged file, ready to be loaded by the driver. A task needs no connection to
the server, and no right in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from exactum.errors import FrameRefused
from exactum.protocol.sink import Rejection, Scope
from exactum.sinks.rows import RowCheck, together
from exactum.sinks.staging import Staging
from exactum.sinks.writer import TaskFiles, TaskRows
from exactum.sql.dialect import ROW, ROW_COLUMN, Dialect, Load, Mode, RowEncoder
from exactum.sql.rows import TableRules
from exactum.sql.table import Column, TableName
from exactum.sql.url import Address

READABLE_MAX = 80
"""How much of the query id and of the participant's name a scope shows to a person."""


def scope_text(scope: Scope) -> str:
    """How a database's ledger names it: ASCII, at most 200 characters, a part that a person can
    read and one that is unique.
    """
    readable = re.sub(r"[^0-9A-Za-z:._-]", "_", f"{scope.query_id[:36]}/{scope.participant[:40]}")
    return f"{readable[:READABLE_MAX]}#{scope.digest[:32]}"


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
        return f"sink {self.staging.scope.participant!r} at {self.address.where}"

    @property
    def is_judged(self) -> bool:
        """Whether only the server knows of some rows whether it takes them."""
        return any(column.judged for column in self.columns)

    @property
    def loaded_columns(self) -> tuple[Column, ...]:
        """What a staged file has, in this order."""
        flag = () if self.flag is None else (self.flag,)
        row = (ROW_COLUMN,) if self.mode is Mode.UPSERT else ()
        return (*self.columns, *flag, *row)


ROWS_BITS = 40
"""How many bits of ``exactum_row`` count the rows of one task; the partition's number is above
them.
"""


class SqlRows(TaskRows):
    """See the base class."""

    _plan: WritePlan

    def __init__(self, plan: WritePlan) -> None:
        super().__init__(plan)
        self._encoder: RowEncoder | None = None
        self._next_row: int | None = None
        key = plan.key if plan.mode is Mode.UPSERT else ()
        self._rules = TableRules(plan.columns, plan.frame_columns, key, plan.named_by)
        flag = () if plan.flag_column is None else (plan.flag_column,)
        self._sent = [*plan.frame_columns, *flag]
        self._expected = sorted(self._sent)

    def write(self, batch: pa.RecordBatch, files: TaskFiles) -> Rejection | None:
        """
        Raises:
            FrameRefused: the batch does not have exactly the columns that the frame had at start.
        """
        if sorted(batch.schema.names) != self._expected:
            raise FrameRefused(
                "SQL_COLUMNS",
                f"Task {files.task} of {self._plan.shown}: the batch has the columns "
                f"{', '.join(batch.schema.names)}, and the frame had {', '.join(self._sent)} at "
                "start. Nothing of the epoch is visible. Give each use in a query (another frame, "
                "rows=, dead_letters=) a sink object of its own, and rows= the same columns for "
                "each batch.",
            )
        accepted, rejection = self._rules.split(batch)
        if accepted.num_rows:
            accepted = accepted.select(self._sent)
            loaded = self._numbered(accepted, files.task)
            encoder = self._encoder_for(loaded.schema.types)
            too_large = encoder.write(loaded, files.frames(load_of(self._plan, encoder).header))
            if too_large is not None:
                check = RowCheck(accepted)
                check.refuse(too_large.mask, too_large.rule, too_large.has)
                rejection = together(rejection, check.outcome(self._rules.names)[1])
        return rejection

    def _numbered(self, batch: pa.RecordBatch, task: int) -> pa.RecordBatch:
        """With ``exactum_row``, for an upsert."""
        if self._plan.mode is not Mode.UPSERT:
            return batch
        first = task << ROWS_BITS if self._next_row is None else self._next_row
        self._next_row = first + batch.num_rows
        numbers = pa.array(np.arange(first, self._next_row, dtype=np.int64))
        names = [*batch.schema.names, ROW]
        return pa.RecordBatch.from_arrays([*batch.columns, numbers], names=names)

    def _encoder_for(self, kinds: list[pa.DataType]) -> RowEncoder:
        """All of a frame's batches have the same Arrow types."""
        if self._encoder is None:
            plan = self._plan
            self._encoder = plan.dialect.encoder(plan.loaded_columns, kinds, dict(plan.load_facts))
        return self._encoder


def load_of(plan: WritePlan, encoder: RowEncoder) -> Load:
    """What a staged file says of itself, in its header."""
    flag = plan.flag
    return Load(
        plan.target,
        plan.columns,
        plan.mode,
        plan.key,
        plan.order_by,
        None if flag is None else (flag.name, flag.type),
        encoder.header,
    )
