"""``SqlSink``: a table as the target of a query, over any dialect. Users meet its subclasses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from exactum.errors import FrameRefused, SettingRefused
from exactum.protocol.inspection import Inspector
from exactum.protocol.sink import (
    DEAD_LETTER_ADDED,
    DEAD_LETTER_COLUMNS,
    Guarantee,
    NotAFunction,
    OpenSink,
    QueryRun,
)
from exactum.sinks.staged import JudgingParticipant, StagedParticipant
from exactum.sinks.staging import TRACE, Staging, reach_staging, staging_of, wanted
from exactum.sql.arguments import column_names, one_of
from exactum.sql.columns import matched, named_by
from exactum.sql.dialect import Dialect, Mode, Role, ServerFailure, Session, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.plan import SqlScope, WritePlan
from exactum.sql.table import Column, Kind, Table, TableName, other_keys
from exactum.sql.table_change import hidden_rows
from exactum.sql.target import SqlTarget, rehearse
from exactum.sql.url import Address
from exactum.sql.writer import SqlWriterFactory
from exactum.storage.storage import Storage

LOCK_TIMEOUT_S = 20.0
"""Longest that a statement of ours waits for somebody else's lock."""
CREATE_TRIES_MAX = 5
"""How often two starts that create the same tables at once may trip over each other."""


class SqlSink(NotAFunction, ABC):
    """A table as a target. ``PostgresSink`` and ``MySQLSink`` say what the arguments mean to a
    user, and of which server.
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
        self._where = f"{type(self).__name__}({table!r})"
        self._dialect, self._address = self._server(url, connect)
        self._table = table
        self._target = TableName.of(table, self._where)
        self._mode: Mode = one_of(Mode, "mode", mode, self._where)
        self._key = column_names("key", key, self._where)
        self._order_by = column_names("order_by", order_by, self._where)
        self._delete_when = delete_when
        self._create_table = create_table
        self._rows = rows
        self._refuse_contradictions()

    def __repr__(self) -> str:
        return f"{self._where[:-1]}, at={self._address.where!r})"

    @property
    def name(self) -> str:
        return f"{self._dialect.scheme}:{self._table}"

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def address(self) -> Address:
        """Where its server is, with the password."""
        return self._address

    @property
    def where(self) -> str:
        """How messages name it."""
        return self._where

    @property
    def table(self) -> TableName:
        """As it was given: without a schema it is looked up at the server."""
        return self._target

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def creates_table(self) -> bool:
        return self._create_table

    @property
    def rights(self) -> tuple[str, ...]:
        """What it does to its table."""
        if self._mode is Mode.APPEND:
            return ("INSERT",)
        return ("SELECT", "INSERT", "UPDATE", *(("DELETE",) if self._delete_when else ()))

    @property
    def rows(self) -> Callable[[Any], Any] | None:
        return self._rows

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return DEAD_LETTER_COLUMNS

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port. What needs the table is checked by the ``open`` that follows."""
        types = dict(columns)
        for setting, names in (("key", self._key), ("order_by", self._order_by)):
            for name in names:
                if name not in types:
                    raise FrameRefused(
                        "SQL_COLUMNS",
                        f"{self._where}: {setting} names the column {name!r}; "
                        f"{_frame_has(columns)}",
                    )
        flag = self._delete_when
        if flag is not None and types.get(flag) != "boolean":
            found = f"it is {types[flag]}" if flag in types else _frame_has(columns)
            raise FrameRefused(
                "SQL_COLUMNS",
                f"{self._where}: delete_when={flag!r} must name a boolean column; {found}",
            )
        if not [name for name in types if name != flag]:
            raise FrameRefused(
                "SQL_COLUMNS",
                f"{self._where}: the frame has no column to write. Nothing was written.",
            )

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port. Creates exactum's ledger in the target's schema where it is missing."""
        self.check_columns(columns)
        scope = SqlScope(run.query_id, participant)
        shown = f"{self._where} at {self._address.where}"
        staging = staging_of(run, scope, shown)
        try:
            session = self._dialect.connect(
                self._address, Role.LOADER, "exactum start", LOCK_TIMEOUT_S
            )
        except SqlFailure as failure:
            raise port_error(failure, shown) from failure
        try:
            plan = self._checked(session, staging, scope, columns)
            _racing(session, lambda: self._dialect.create_own_tables(session, plan.target))
            facts = self._dialect.load_facts(session)
            plan = replace(plan, load_facts=tuple(facts.items()))
            rehearse(plan, session)
        except SqlFailure as failure:
            raise port_error(failure, shown) from failure
        finally:
            session.close()
        at = self._address.where.rpartition("@")[2]  # whoever the user is
        made = JudgingParticipant if plan.is_judged else StagedParticipant
        left_out = frozenset(name for name, _ in columns) - {*plan.frame_columns, plan.flag_column}
        return OpenSink(
            made(staging, SqlTarget(plan, marks=run.guarantee is Guarantee.EXACTLY_ONCE)),
            SqlWriterFactory(plan),
            f"table {plan.target} at {at}",
            TRACE,
            reach_staging(run),
            left_out,
        )

    @abstractmethod
    def _server(self, url: str, connect: Mapping[str, object] | None) -> tuple[Dialect, Address]:
        """What the URL and further options name.

        Raises:
            SettingRefused: it cannot be read, or what a dialect needs is not installed.
        """

    @abstractmethod
    def quoted(self, name: TableName | str) -> str:
        """A table's name, or a column's, for the text of a statement."""

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """See ``protocol.inspection.Inspectable``."""
        from exactum.sql.inspection import inspector_of

        scope = SqlScope(query_id, participant)
        return inspector_of(
            self._dialect, self._address, self._target, scope, wanted(staging, self._where)
        )

    # ---- checks ------------------------------------------------------------------------------

    def _refuse_contradictions(self) -> None:
        upsert = self._mode is Mode.UPSERT
        if upsert and not self._key:
            raise SettingRefused(
                "SQL_ARGUMENT",
                f"{self._where}: mode='upsert' needs key=[...], the columns that identify a row.",
            )
        for setting, value in (("order_by", self._order_by), ("delete_when", self._delete_when)):
            if value and not upsert:
                raise SettingRefused(
                    "SQL_ARGUMENT",
                    f"{self._where}: {setting} means something with mode='upsert' only.",
                )
        if self._delete_when in self._key or self._delete_when in self._order_by:
            raise SettingRefused(
                "SQL_ARGUMENT",
                f"{self._where}: delete_when={self._delete_when!r} names a column that is not "
                "written; it cannot be in key or order_by.",
            )

    def _checked(
        self,
        session: Session,
        staging: Staging,
        scope: SqlScope,
        frame: Sequence[tuple[str, str]],
    ) -> WritePlan:
        written = [(name, spark_type) for name, spark_type in frame if name != self._delete_when]
        for name in filter(None, (self._target.schema, self._target.table)):
            if not self._dialect.can_name(name):  # PostgreSQL would cut it off without a word
                raise SettingRefused(
                    "SQL_ARGUMENT",
                    f"{self._where}: {self._dialect.name} has no table or schema of the name "
                    f"{name!r}: too long, or with characters that no name has. Give table= another "
                    "one.",
                )
        table = self._dialect.read_table(session, self._target)
        if table is None and self._create_table:
            self._create(session, written)
            table = self._dialect.read_table(session, self._target)
        if table is None:
            raise SettingRefused(
                "SQL_TABLE_MISSING",
                f"{self._where}: there is no table {self._table!r} at {self._address.where}, or "
                "the user may not see it. Create it, or pass create_table=True. exactum never "
                "creates a table unasked.",
            )
        session.rollback()
        if tuple(written) == DEAD_LETTER_COLUMNS:
            written = [column for column in written if column[0] not in _lacking(table)]
        columns = matched(table, written, self._dialect, self._where)
        by_frame = dict(zip((name for name, _ in written), columns, strict=True))
        key = tuple(by_frame[name].name for name in self._key)
        if self._mode is Mode.UPSERT:
            self._check_key(table, key)
        flag = None
        if self._delete_when is not None:
            if table.hides_rows:
                raise SettingRefused(
                    "SQL_ROW_SECURITY", f"{self._where}: {hidden_rows(table.name)}"
                )
            flag = self._flag({c.name for c in columns})
        return WritePlan(
            dialect=self._dialect,
            address=self._address,
            where=self._where,
            scope=scope,
            target=table.name,
            columns=columns,
            frame_columns=tuple(name for name, _ in written),
            flag=flag,
            flag_column=self._delete_when,
            mode=self._mode,
            key=key,
            order_by=tuple(by_frame[name].name for name in self._order_by),
            named_by=self._key or named_by(table.unique_keys, by_frame),
            lock_timeout_s=LOCK_TIMEOUT_S,
            staging=staging,
        )

    def check_key(self, table: Table) -> None:
        """
        Raises:
            SettingRefused: the table has no unique constraint on exactly the key of an upsert, or
                one too many.
        """
        spelled = {column.name.lower(): column.name for column in table.columns}
        if self._mode is Mode.UPSERT:
            self._check_key(table, [spelled.get(name.lower(), name) for name in self._key])

    def _check_key(self, table: Table, key: Sequence[str]) -> None:
        wanted = frozenset(key)
        if wanted not in table.unique_keys:
            known = "; ".join(sorted(", ".join(sorted(k)) for k in table.unique_keys)) or "none"
            raise SettingRefused(
                "SQL_KEY",
                f"{self._where}: mode='upsert' needs a primary key or a unique constraint on "
                f"exactly ({', '.join(key)}); the table has: {known}. Create one, or correct key=.",
            )
        others = other_keys(table.unique_keys, key)
        if others and self._dialect.upserts_by_any_key:
            raise SettingRefused(
                "SQL_KEY",
                f"{self._where}: {self._dialect.name} upserts by whichever unique key a row hits, "
                f"and the table has another one than key=: ({', '.join(sorted(others[0]))}). A row "
                "could replace a different one. Drop that key, or use a table with one key.",
            )

    def _flag(self, taken: set[str]) -> Column:
        """The column for ``delete_when`` of what is loaded, under a name that no written column
        has.
        """
        name = "exactum_delete"
        declared = self._dialect.type_for("boolean", False)
        if declared is None or name in taken:
            raise SettingRefused(
                "SQL_ARGUMENT",
                f"{self._where}: the table has a column {name!r}, a name that exactum needs.",
            )
        return Column(name, declared, Kind.BOOLEAN)

    # ---- tables ------------------------------------------------------------------------------

    def _create(self, session: Session, written: Sequence[tuple[str, str]]) -> None:
        columns: list[Column] = []
        for name, spark_type in written:
            if not self._dialect.can_name(name):
                raise FrameRefused(
                    "SQL_CREATE",
                    f"{self._where}: create_table=True cannot name a column {name!r} in "
                    f"{self._dialect.name}: too long, or with characters that no name has. Rename "
                    "it in the query, or create the table yourself.",
                )
            declared = self._dialect.type_for(spark_type, name in self._key)
            if declared is None:
                raise FrameRefused(
                    "SQL_CREATE",
                    f"{self._where}: create_table=True has no {self._dialect.name} type for the "
                    f"column {name!r} of type {spark_type}. Convert it in the query (to_json(), "
                    "for one), or create the table yourself.",
                )
            columns.append(Column(name, declared, Kind.OTHER, nullable=name not in self._key))
        _racing(
            session, lambda: self._dialect.create_table(session, self._target, columns, self._key)
        )


def _racing(session: Session, create: Callable[[], None]) -> None:
    """Two queries that start at once may create the same table; the second one finds it."""
    for attempt in range(CREATE_TRIES_MAX):
        try:
            create()
            return
        except SqlFailure as failure:
            session.rollback()
            if failure.failure is not ServerFailure.BUSY or attempt == CREATE_TRIES_MAX - 1:
                raise


def _lacking(table: Table) -> set[str]:
    """What was added to the dead letters after this table was made for them."""
    return set(DEAD_LETTER_ADDED) - {column.name.lower() for column in table.columns}


def _frame_has(columns: Sequence[tuple[str, str]]) -> str:
    return f"the frame has {', '.join(name for name, _ in columns)}."
