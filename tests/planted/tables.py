"""Faults of tables, and of the files in which their rows wait."""

from __future__ import annotations

from tests.planted.fault import ALL_ROWS, DRIVER, ORDER, OTHERS, TASK, Fault

TABLES = (
    Fault(
        "an epoch is loaded without its ledger row",
        DRIVER,
        "sql/ledger.py",
        '        return session.execute(self._sql("enter_ledger"), (self._scope, *astuple(row))) == 1\n',
        "        return True\n",
        ("tests/sql/test_staging.py", "tests/sql/test_epochs.py", "tests/sql/test_contract.py"),
    ),
    Fault(
        "a held transaction of other files is committed",
        DRIVER,
        "sql/target.py",
        "        if digest != epoch.digest or not session.usable:\n",
        "        if not session.usable:\n",
        ("tests/sql/test_staging.py",),
    ),
    Fault(
        "an epoch's files are loaded beside another table's ledger",
        DRIVER,
        "sql/target.py",
        "        ledger = self._ledger(_target_of(epoch))\n        if not ledger.enter(",
        "        ledger = self._ledger()\n        if not ledger.enter(",
        ("tests/sql/test_staging.py",),
    ),
    Fault(
        "a decided epoch goes to another database",
        DRIVER,
        "sinks/staged.py",
        "        self._refuse_moved(permit, epoch)\n",
        "",
        ("tests/sql/test_moved_sink.py",),
    ),
    Fault(
        "rows that a staged file lacks are not missed",
        ALL_ROWS,
        "sql/target.py",
        "            if rows != part.file_rows:\n",
        "            if False:\n",
        ("tests/sql/test_staging.py",),
    ),
    Fault(
        "staged files go before their epoch is in the table",
        DRIVER,
        "sinks/staged.py",
        "        try:\n            state = self._target.publish(epoch)\n",
        "        self._staging.remove([p.identity for p in prepared])\n"
        "        try:\n            state = self._target.publish(epoch)\n",
        ("tests/sql/test_staging.py", "tests/sql/test_epochs.py", "tests/sql/test_contract.py"),
    ),
    Fault(
        "a delivery that was not answered is sent again",
        TASK,
        "sql/target.py",
        "            except SqlFailure as failure:  # not again: it may have taken effect\n                raise OutcomeUnknown(",
        "            except ZeroDivisionError as failure:\n                raise OutcomeUnknown(",
        ("tests/sql/test_staging.py",),
    ),
    Fault(
        "a file of another query's task is swept",
        OTHERS,
        "sinks/staging.py",
        '        return f"{self.above}{self.scope.digest[:32]}"\n',
        '        return f"{self.above}all"\n',
        ("tests/sql/test_contract.py",),
    ),
    Fault(
        "rows of a later task of one key come first",
        ORDER,
        "sql/postgres/dialect.py",
        'ORDER BY {key}, {by}{ROW} DESC"\n',
        'ORDER BY {key}, {by}{ROW} ASC"\n',
        ("tests/sql/postgres/test_upsert.py", "tests/sql/test_upsert.py"),
    ),
)
