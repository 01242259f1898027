"""Faults of tables of a lakehouse."""

from __future__ import annotations

from tests.planted.fault import DRIVER, Fault

LAKE = (
    Fault(
        "a version of a table has no marker",
        DRIVER,
        "lake/delta.py",
        "        own.append(Transaction(batch, marker.batch_id, now_ms))\n",
        "",
        ("tests/lake/test_tables.py -k delta",),
    ),
    Fault(
        "a batch that a table has is merged into it again",
        DRIVER,
        "lake/target.py",
        "        if state is not Published.MISSING:\n            return state\n        try:\n"
        "            if why := self._changed(table, epoch, decided=True):",
        "        try:\n            if why := self._changed(table, epoch, decided=True):",
        ("tests/lake/test_delta.py",),
    ),
    Fault(
        "a merge without effect leaves no marker",
        DRIVER,
        "lake/delta.py",
        "            self.append([], scope, marker)\n",
        "            pass\n",
        ("tests/lake/test_delta.py",),
    ),
    Fault(
        "a snapshot of a table has no marker",
        DRIVER,
        "lake/iceberg.py",
        "                transaction.set_properties({scope: json.dumps(value)})\n",
        "",
        ("tests/lake/test_tables.py -k iceberg",),
    ),
    Fault(
        "a snapshot is committed on top of whatever there is",
        DRIVER,
        "lake/iceberg.py",
        "(*transaction._requirements, same)",
        "(same,)",
        ("tests/lake/test_iceberg.py",),
    ),
    Fault(
        "a commit whose answer was lost is tried again without a marker",
        DRIVER,
        "lake/target.py",
        "            if marker is None:\n                raise\n            raise CommitConflict",
        "            raise CommitConflict",
        ("tests/lake/test_iceberg.py",),
    ),
    Fault(
        "a file's statistics are told of a later column of the same name",
        DRIVER,
        "lake/iceberg.py",
        "table, schema = self._table, self._schema_of(file.schema_id)",
        "table, schema = self._table, self._table.schema()",
        ("tests/lake/test_iceberg.py",),
    ),
    Fault(
        "values of a partition are taken by their places",
        DRIVER,
        "lake/iceberg.py",
        "values = [known.get(_level_id(field)) for field in table.spec().fields]",
        "values = list(known.values())",
        ("tests/lake/test_iceberg.py",),
    ),
)
