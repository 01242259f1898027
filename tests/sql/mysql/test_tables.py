"""Tables of MySQL: which may be written to, and what becomes of one that is changed so that rows do not
fit any more.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from exactum.errors import RowsRefused, SettingRefused
from tests.kit.errors import raised
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import NUMBERS, numbers


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        *(
            (f"CREATE TABLE t (v bigint NOT NULL) ENGINE={engine}", f"engine {engine}")
            for engine in ("Aria", "MyISAM", "MEMORY", "CSV", "MRG_MyISAM")
        ),
        ("CREATE VIEW t AS SELECT 1 AS v", "a view"),
        ("CREATE SEQUENCE t", "a sequence"),  # whose engine is InnoDB
    ],
)
def test_only_transactional_tables(database: Database, statement: str, kind: str) -> None:
    """Another engine, or what is no table, is refused at start by its true name."""
    database.run(statement)
    with raised(SettingRefused, "SQL_TABLE_KIND", f" {kind};", "InnoDB") as caught:
        database.query("t", NUMBERS).check()
    assert ("ENGINE=InnoDB" in str(caught.value)) == ("engine" in kind)


@pytest.mark.parametrize(
    "more",
    [
        ") WITH SYSTEM VERSIONING",
        ") WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION p HISTORY, PARTITION n CURRENT)",
        ", b timestamp(6) GENERATED ALWAYS AS ROW START, e timestamp(6) GENERATED ALWAYS AS ROW "
        "END, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING",
        ") PARTITION BY HASH (v) PARTITIONS 3",
        ") ROW_FORMAT=COMPRESSED",
    ],
)
def test_tables_that_the_catalog_calls_by_another_name(database: Database, more: str) -> None:
    """MariaDB's tables that keep their former rows are tables as well."""
    database.run(f"CREATE TABLE t (v bigint NOT NULL{more}")
    database.query("t", NUMBERS).write(numbers(1, 2), numbers(3))
    assert database.values("t") == [1, 2, 3]


def test_an_upsert_into_a_table_that_keeps_its_former_rows(database: Database) -> None:
    database.run("CREATE TABLE t (k bigint PRIMARY KEY, v bigint) WITH SYSTEM VERSIONING")
    query = database.query("t", (("k", "bigint"), ("v", "bigint")), mode="upsert", key="k")
    for epoch in range(2):
        rows = pa.record_batch({"k": pa.array([1, 2]), "v": pa.array([epoch, epoch])})
        query.write(rows, batch_id=epoch)
    assert sorted(database.run("SELECT k, v FROM t")) == [(1, 1), (2, 1)]
    assert database.run("SELECT count(*) FROM t FOR SYSTEM_TIME ALL")[0][0] == 4


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("DROP TABLE t", SettingRefused),  # 1146
        # 1442
        ("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW UPDATE t SET v = 1", SettingRefused),
        # 1146
        ("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.v = (SELECT "
         "1 FROM none)", SettingRefused),
        # 1644
        ("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SIGNAL SQLSTATE '45000'", RowsRefused),
        ("ALTER TABLE t ADD CHECK (v < 0)", RowsRefused),  # 4025
        ("ALTER TABLE t ADD s int AS (CAST(v AS unsigned) * 9999999) STORED", RowsRefused),  # 1264
        ("ALTER TABLE t ADD UNIQUE (w)", RowsRefused),  # 1062
    ],
)  # fmt: skip
def test_what_no_restart_can_mend_says_so(
    database: Database, change: str, error: type[Exception]
) -> None:
    """A table that changes under a running query: the rows are refused, or the setting; never
    "start it again".
    """
    database.run("CREATE TABLE t (v bigint, w bigint)")
    one = database.query("t", (("v", "bigint"), ("w", "bigint"))).start()
    database.run(change)
    rows = pa.record_batch([pa.array([7777, 7778]), pa.array([5, 5])], ["v", "w"])
    with pytest.raises(error):
        one.epoch(0, rows)
    one.close()
