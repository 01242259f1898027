"""``SqlSink``: a table as the target of a query, over any dialect. Users meet its subclasses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from exactum.errors import FrameRefused, SettingRefused
from exactum.problem import Problem
from exactum.protocol.dead_letter import DeadLetter, of_columns
from exactum.protocol.inspection import Evidence, Promise
from exactum.protocol.sink import DEAD_LETTER_COLUMNS, Guarantee, OpenSink, QueryRun
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.missing_target import refuse_anew
from exactum.sinks.sink import StagedSink
from exactum.sinks.staged import StagedPart
from exactum.sinks.staging import Staging
from exactum.sql.columns import hidden_rows, matched, named_by, wrong_key
from exactum.sql.dialect import Dialect, Mode
from exactum.sql.session import Session, SqlFailure, asking
from exactum.sql.table import Column, Kind, Table, TableName
from exactum.sql.target import SqlTarget, rehearse
from exactum.sql.url import Address
from exactum.sql.writer import SqlRows, WritePlan

FLAG = Column("exactum_delete", "boolean", Kind.BOOLEAN)
"""For ``delete_when`` in what is loaded."""


class SqlSink(StagedSink):
    """A table as a target. ``PostgresSink`` and ``MySQLSink`` say what the arguments mean to a
    user, and of which server.

    where: the sink in messages. address: of its server, with the password. target: the table as the
    user wrote it.
    """

    def __init__(
        self,
        url: str,
        *,
        table: str,
        mode: str = "append",
        key: Sequence[str] | str | None = None,
        order_by: Sequence[str] | str | None = None,
        delete_when: str | None = None,
        create_table: bool = False,
        connect: Mapping[str, object] | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        self.where = f"{type(self).__name__}({table!r})"
        self.dialect, self.address = self._server(url, connect)
        self.name = f"{self.dialect.scheme}:{table}"
        self._table = table
        self.target = TableName.of(table, self.where)
        if mode not in [known.value for known in Mode]:
            choices = " or ".join(repr(known.value) for known in Mode)
            raise SettingRefused("SQL_ARGUMENT", f"{self.where}: mode={mode!r} must be {choices}.")
        self.mode = Mode(mode)
        self.key = _column_names("key", key, self.where)
        self.order_by = _column_names("order_by", order_by, self.where)
        self._delete_when = delete_when
        self.creates_table = create_table
        self.rows = rows
        self._refuse_contradictions()

    def __repr__(self) -> str:
        return f"{self.where[:-1]}, at={self.address.where!r})"

    @property
    def rights(self) -> tuple[str, ...]:
        """What the sink does to its table."""
        if self.mode is Mode.APPEND:
            return ("INSERT",)
        return ("SELECT", "INSERT", "UPDATE", *(("DELETE",) if self._delete_when else ()))

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port. What needs the table is checked by the ``open`` that follows."""
        types, flag, why = dict(columns), self._delete_when, None
        has = f"the frame has {', '.join(types)}."
        if not [name for name in types if name != flag]:
            why = "the frame has no column to write. Nothing was written."
        if flag is not None and types.get(flag) != "boolean":
            found = f"it is {types[flag]}" if flag in types else has
            why = f"delete_when={flag!r} must name a boolean column; {found}"
        for setting, names in (("order_by", self.order_by), ("key", self.key)):
            for name in names:
                if name not in types:
                    why = f"{setting} names the column {name!r}; {has}"
        if why is not None:
            raise FrameRefused("SQL_COLUMNS", f"{self.where}: {why}")

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port. Creates exactum's ledger in the target's schema where it is missing."""
        self.check_columns(columns)
        shown = f"{self.where} at {self.address.where}"
        staging = self.staging_of(run, participant)
        staging.open()
        with asking(self.dialect, self.address, "exactum start", shown) as session:
            refuse = partial(refuse_anew, shown, run, participant, self.address.place, self._is_of)
            plan = self._checked(session, staging, columns, refuse)
            self.dialect.create_own_tables(session, plan.target)
            load_facts = self.dialect.load_facts(session)
            plan = replace(plan, load_facts=tuple(load_facts.items()))
            rehearse(plan, session)
        marks = run.guarantee is Guarantee.EXACTLY_ONCE
        target = SqlTarget(plan, marks=marks, run=run.number)
        facts = {"table": [plan.target.schema, plan.target.table], "mode": plan.mode.value}
        at = self.address.where.rpartition("@")[2]  # whoever the user is
        left_out = frozenset(name for name, _ in columns) - {*plan.frame_columns, plan.flag_column}
        return replace(
            self.open_with(run, target, SqlRows, plan, facts),
            target=f"table {plan.target} at {at}",
            left_out=left_out,
        )

    @abstractmethod
    def _server(self, url: str, connect: Mapping[str, object] | None) -> tuple[Dialect, Address]:
        """What the URL and further options name.

        Raises:
            SettingRefused: it cannot be read, or what a dialect needs is not installed.
        """

    def quoted(self, name: TableName | str) -> str:
        """A table's name, or a column's, for the text of a statement."""
        sql = self.dialect.sql
        return sql.quote(name) if isinstance(name, str) else sql.quote_table(name)

    def target_of(self, run: QueryRun, participant: str) -> SqlTarget:
        """See the base class. It need not know the target's columns: a staged file says itself how
        it is loaded.
        """
        shown = f"sink {participant!r} at {self.address.where}"
        table = None
        with (
            asking(self.dialect, self.address, "exactum operator", shown) as session,
            suppress(SqlFailure, SettingRefused),  # its ledger may be there all the same
        ):
            table = self.dialect.read_table(session, self.target)
        staging = self.staging_of(run, participant)
        target = self.target if table is None else table.name
        return SqlTarget(WritePlan(self.dialect, self.address, target, staging))

    def evidence_of(
        self, inspector: StagedInspector, promises: Sequence[Promise]
    ) -> Sequence[Evidence]:
        """See the base class."""
        from exactum.sql.evidence import sql_evidence

        return sql_evidence(self, inspector.staging, promises)

    def dead_letters(self) -> Iterator[DeadLetter]:
        """See ``protocol.dead_letter.DeadLetterStore``."""
        shown = f"the dead letters at {self.address.where}"
        with asking(self.dialect, self.address, "exactum dead letters", shown) as session:
            table = self.dialect.read_table(session, self.target)
            if table is None:
                raise self.missing_table()
            there = {column.name.lower(): column.name for column in table.columns}
            names = [name for name, _ in DEAD_LETTER_COLUMNS if name in there]
            columns = ", ".join(self.quoted(there[name]) for name in names)
            found = session.query(f"SELECT {columns} FROM {self.quoted(table.name)}")
            yield from of_columns(dict(zip(names, row, strict=True)) for row in found)

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        from exactum.sql.proof import prove_sink

        return prove_sink(self)

    # ---- checks ------------------------------------------------------------------------------

    def _refuse_contradictions(self) -> None:
        why = None
        if self.mode is Mode.UPSERT and not self.key:
            why = "mode='upsert' needs key=[...], the columns that identify a row."
        for setting, value in (("order_by", self.order_by), ("delete_when", self._delete_when)):
            if value and self.mode is not Mode.UPSERT:
                why = f"{setting} means something with mode='upsert' only."
        if self._delete_when in self.key or self._delete_when in self.order_by:
            why = (
                f"delete_when={self._delete_when!r} names a column that is not written; it cannot "
                "be in key or order_by."
            )
        if why is not None:
            raise SettingRefused("SQL_ARGUMENT", f"{self.where}: {why}")

    def _checked(
        self,
        session: Session,
        staging: Staging,
        frame: Sequence[tuple[str, str]],
        refuse: Callable[[], None],
    ) -> WritePlan:
        """``refuse``: called before the table is made."""
        written = [(name, spark_type) for name, spark_type in frame if name != self._delete_when]
        for name in filter(None, (self.target.schema, self.target.table)):
            if not self.dialect.can_name(name):  # PostgreSQL would cut it off without a word
                raise SettingRefused(
                    "SQL_ARGUMENT",
                    f"{self.where}: {self.dialect.name} has no table or schema of the name "
                    f"{name!r}: too long, or with characters that no name has. Give table= another "
                    "one.",
                )
        table = self.dialect.read_table(session, self.target)
        if table is None and self.creates_table:
            refuse()
            self._create(session, written)
            table = self.dialect.read_table(session, self.target)
        if table is None:
            raise self.missing_table()
        session.rollback()
        columns = matched(table, written, self.dialect, self.where)
        by_frame = dict(zip((name for name, _ in written), columns, strict=True))
        key = tuple(by_frame[name].name for name in self.key)
        self.check_key(table)
        flag = None
        if self._delete_when is not None:
            if table.hides_rows:
                raise SettingRefused("SQL_ROW_SECURITY", f"{self.where}: {hidden_rows(table.name)}")
            flag = FLAG
        return WritePlan(
            dialect=self.dialect,
            address=self.address,
            target=table.name,
            columns=columns,
            frame_columns=tuple(name for name, _ in written),
            flag=flag,
            flag_column=self._delete_when,
            mode=self.mode,
            key=key,
            order_by=tuple(by_frame[name].name for name in self.order_by),
            named_by=self.key or named_by(table.unique_keys, by_frame),
            staging=staging,
        )

    def missing_table(self) -> SettingRefused:
        """Why a start is refused where there is no table."""
        return SettingRefused(
            "SQL_TABLE_MISSING",
            f"{self.where}: there is no table {self._table!r} at {self.address.where}, or the user "
            "may not see it. Create it, or pass create_table=True. exactum never creates a table "
            "unasked.",
        )

    def check_key(self, table: Table) -> None:
        """The key of an upsert, spelled as the table spells its columns.

        Raises:
            SettingRefused: the table has no unique constraint on exactly the key, or one too many.
        """
        if self.mode is not Mode.UPSERT:
            return
        names = [column.name for column in table.columns]
        spelled = {name.lower(): name for name in names} | {name: name for name in names}
        key = [spelled.get(name, spelled.get(name.lower(), name)) for name in self.key]
        if why := wrong_key(table, key, self.dialect):
            raise SettingRefused("SQL_KEY", f"{self.where}: mode='upsert' {why}")

    # ---- tables ------------------------------------------------------------------------------

    def _is_of(self, part: StagedPart) -> bool:
        """Whether its rows were for a table of this name."""
        schema, table = part.facts["table"]
        return table == self.target.table and self.target.schema in (None, schema)

    def _create(self, session: Session, written: Sequence[tuple[str, str]]) -> None:
        columns: list[Column] = []
        for name, spark_type in written:
            declared = self.dialect.type_for(spark_type, name in self.key)
            why = None
            if not self.dialect.can_name(name):
                why = (
                    f"cannot name a column {name!r} in {self.dialect.name}: too long, or with "
                    "characters that no name has. Rename it in the query, or create the table "
                    "yourself."
                )
            elif declared is None:
                why = (
                    f"has no {self.dialect.name} type for the column {name!r} of type "
                    f"{spark_type}. Convert it in the query (to_json(), for one), or create the "
                    "table yourself."
                )
            if declared is None or why is not None:
                raise FrameRefused("SQL_CREATE", f"{self.where}: create_table=True {why}")
            columns.append(Column(name, declared, Kind.OTHER, nullable=name not in self.key))
        self.dialect.create_table(session, self.target, columns, self.key)


def _column_names(setting: str, value: Sequence[str] | str | None, where: str) -> tuple[str, ...]:
    """One column's name, or a list of them, as a tuple.

    Raises:
        SettingRefused: it is neither, or a name comes twice.
    """
    found = (value,) if isinstance(value, str) else () if value is None else value
    is_list = isinstance(found, list | tuple) and all(isinstance(n, str) and n for n in found)
    if not is_list or len(set(found)) != len(found):
        raise SettingRefused(
            "SQL_ARGUMENT",
            f"{where}: {setting}={value!r} must be a column's name, or a list of different names.",
        )
    return tuple(found)
