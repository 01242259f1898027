"""A stream-stream join has four state stores in each partition; all of them are in its
savepoint. No broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import restore
from exactum.spark.run.committed_epochs import ON_DIFFERENCE
from exactum.spark.settings import FORMAT
from tests.kit.spark.folder_sink import rows
from tests.kit.spark.query import Query
from tests.kit.spark.torn_stream import IN_MEMORY, configured

pytestmark = pytest.mark.spark

ACCEPTED = {ON_DIFFERENCE: "warn"}
"""Where the query gives the same result each time, its state may be in format 1."""
SETTINGS = {
    "format_2": {},
    "format_1": {FORMAT: "1", **ACCEPTED},
    "memory": {**IN_MEMORY, **ACCEPTED},
}


def pairs(frame: DataFrame) -> DataFrame:
    """Of all values with the same k."""
    joined = frame.alias("one").join(frame.alias("two"), f.expr("one.k = two.k"))
    return joined.selectExpr("one.v AS v", "two.v AS w")


@pytest.mark.deep
@pytest.mark.parametrize("kind", SETTINGS)
def test_a_join_goes_on_from_its_savepoint(
    spark: SparkSession, query: Query, tmp_path: Path, kind: str
) -> None:
    """The original is gone; pairs of a row from before the savepoint and one from after it are
    all there, once each.
    """
    with configured(spark, SETTINGS[kind]):
        query.give(1, 2, 3)
        query.give(4, 5, 6)
        assert query.run(query.exactly_once(), transform=pairs) is None
        made = create(str(query.checkpoint), tmp_path / "savepoint")
        assert [(o.partitions, o.stores) for o in made.operators] == [(2, 8)]
        # Renamed, not removed: a state store's maintenance may still be writing a file.
        query.checkpoint.rename(tmp_path / "gone")
        query.checkpoint = tmp_path / "fork"
        restore(tmp_path / "savepoint", str(query.checkpoint))
        query.give(7, 8, 9)
        assert query.run(query.exactly_once(), transform=pairs) is None
    wanted = [(v, w) for v in range(1, 10) for w in range(1, 10) if v % 2 == w % 2]
    assert sorted((row["v"], row["w"]) for row in rows(query.out)) == wanted
