"""What a SQL sink was given, for those who look at its target without a query."""

from __future__ import annotations

from dataclasses import dataclass

from exactum.sql.dialect import Dialect, Mode
from exactum.sql.sink import SqlSink
from exactum.sql.table import Table, TableName
from exactum.sql.url import Address


@dataclass(frozen=True)
class SinkFacts:
    """``where`` names the sink in messages; ``table`` is as the user wrote it."""

    where: str
    dialect: Dialect
    address: Address
    table: TableName
    mode: Mode
    creates_table: bool
    deletes: bool
    sink: SqlSink

    @staticmethod
    def of(sink: SqlSink) -> SinkFacts:
        return SinkFacts(
            sink._where,
            sink._dialect,
            sink._address,
            sink._target,
            sink._mode,
            sink._create_table,
            sink._delete_when is not None,
            sink,
        )

    @property
    def rights(self) -> tuple[str, ...]:
        """What the sink does to its table."""
        if self.mode is Mode.APPEND:
            return ("INSERT",)
        return ("SELECT", "INSERT", "UPDATE", *(("DELETE",) if self.deletes else ()))

    def check_key(self, table: Table) -> None:
        """The key of an upsert, spelled as the table spells its columns.

        Raises:
            SettingRefused: the table has no unique constraint on exactly the key, or one too many.
        """
        if self.mode is not Mode.UPSERT:
            return
        spelled = {column.name.lower(): column.name for column in table.columns}
        self.sink._check_key(table, [spelled.get(n.lower(), n) for n in self.sink._key])
