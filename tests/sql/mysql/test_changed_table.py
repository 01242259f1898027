"""A table of MySQL that is changed while a query writes to it, its columns' types aside."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import EpochAborted
from exactum.protocol.sink import Guarantee
from tests.kit.errors import raised
from tests.kit.sql.mysql_server import Database

COLUMNS = (("k", "string"), ("n", "bigint"), ("at", "timestamp"))
EXACT = Guarantee.EXACTLY_ONCE
UPSERT = {"mode": "upsert", "key": ["k"]}
Row = tuple[str, int | None, int | None]


def one_row(key: str, number: int | None, second: int | None) -> Any:
    at = None if second is None else second * 1_000_000
    return pa.record_batch(
        [
            pa.array([key]),
            pa.array([number], pa.int64()),
            pa.array([at], pa.timestamp("us", "UTC")),
        ],
        ["k", "n", "at"],
    )


@pytest.mark.parametrize(
    ("guarantee", "settings", "became", "row", "facts"),
    [
        # Null would become another value in a column that fills it in; the next start puts it aside.
        (EXACT, {}, "MODIFY n bigint NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY (n)",
         ("second", None, None), ["'n'", "NOT NULL"]),
        (EXACT, {}, "MODIFY at timestamp(6) NOT NULL DEFAULT current_timestamp(6)",
         ("second", None, None), ["'at'", "NOT NULL"]),
        # Without its key a row would be there twice.
        (EXACT, UPSERT, "DROP PRIMARY KEY",
         ("first", 1, None), [" (k);"]),
        # By another one it would replace a different row, and not be there itself.
        (Guarantee.AT_LEAST_ONCE, UPSERT, "ADD UNIQUE KEY (n)",
         ("second", 1, None), ["key=: (n)"]),
        # Two keys are one now: the staging would sort them as two, and the wrong row could win.
        (EXACT, UPSERT, "MODIFY k varchar(20) COLLATE utf8mb4_general_ci",
         ("FIRST", 2, 2), ["'k'"]),
    ],
)  # fmt: skip
def test_a_change_by_which_a_row_would_be_another(
    database: Database,
    guarantee: Guarantee,
    settings: dict[str, Any],
    became: str,
    row: Row,
    facts: list[str],
) -> None:
    """The batch is refused, and the next start sees the table."""
    database.run(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY, n bigint NULL, "
        "at timestamp(6) NULL) CHARACTER SET utf8mb4"
    )
    query = database.query("t", COLUMNS, **settings)
    query.guarantee, query.tasks = guarantee, lambda _: [[one_row("first", 1, 1)]]
    driver = query.start()
    driver.carry_out(0)
    database.run(f"ALTER TABLE t {became}")
    query.tasks = lambda _: [[one_row(*row)]]
    with raised(EpochAborted, *facts, "batch 1"):
        driver.carry_out(1)
    driver.close()
    assert database.run("SELECT k, n, at IS NULL FROM t") == [("first", 1, 0)]
