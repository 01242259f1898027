"""What an operator sees of the transactions of a table's sink."""

from __future__ import annotations

from exactum.errors import SettingRefused
from exactum.protocol.scope import Scope
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.staging import Staging
from exactum.sql.dialect import Dialect, Mode, Role, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.plan import SqlScope, WritePlan
from exactum.sql.table import TableName
from exactum.sql.target import SqlTarget
from exactum.sql.url import Address
from exactum.storage.storage import Storage

LABEL = "exactum operator"
LOCK_TIMEOUT_S = 20.0
"""Longest wait for somebody else's lock."""


def inspector_of(
    dialect: Dialect, address: Address, target: TableName, scope: SqlScope, storage: Storage
) -> StagedInspector:
    """Of a sink that writes to ``target``. It need not know the target's columns: a staged file
    says itself how it is loaded.

    Raises:
        SettingRefused: the server refused the user.
        Unavailable: it did not answer.
    """
    where = f"sink {scope.participant!r}"
    try:
        session = dialect.connect(address, Role.DRIVER, LABEL, LOCK_TIMEOUT_S)
    except SqlFailure as failure:
        raise port_error(failure, f"{where} at {address.where}") from failure
    try:
        table = dialect.read_table(session, target)
    except (SqlFailure, SettingRefused):  # whatever has become of it, its ledger may be there
        table = None
    finally:
        session.close()
    staging = Staging(storage, Scope(scope.query_id, scope.participant))
    plan = WritePlan(
        dialect=dialect,
        address=address,
        where=where,
        scope=scope,
        target=target if table is None else table.name,
        columns=(),
        frame_columns=(),
        flag=None,
        flag_column=None,
        mode=Mode.APPEND,
        key=(),
        order_by=(),
        named_by=(),
        lock_timeout_s=LOCK_TIMEOUT_S,
        staging=staging,
    )
    return StagedInspector(staging, SqlTarget(plan))
