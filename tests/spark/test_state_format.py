"""Which checkpoint format a query has that exactum starts: its checkpoint's, whatever the session
says; and a new one the best that its state store has.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from exactum.spark.run.committed_epochs import ON_DIFFERENCE
from exactum.spark.settings import CHANGELOG, FORMAT, PROVIDER
from tests.kit.spark.commit_log import notes
from tests.kit.spark.query import summed
from tests.kit.spark.torn_stream import FORMAT_1, FORMAT_2, IN_MEMORY, configured

pytestmark = pytest.mark.spark

ACCEPTED = {ON_DIFFERENCE: "warn"}


def run(query: Any, value: int, function: Any = None) -> None:
    query.give(value)
    given = query.exactly_once() if function is None else function
    assert query.run(given, transform=summed, mode="update") is None


def formats(query: Any) -> set[str]:
    """Of all micro-batches in Spark's commit log."""
    return {note.read_text().partition("\n")[0] for note in notes(query.checkpoint)}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        pytest.param({}, "v2", id="rocksdb"),
        pytest.param({**IN_MEMORY, **ACCEPTED}, "v1", id="in_memory"),
        pytest.param({**FORMAT_1, **ACCEPTED}, "v1", id="as_the_user_says", marks=pytest.mark.deep),
    ],
)
def test_a_new_checkpoint_keeps_its_format(
    query: Any, spark: SparkSession, settings: dict[str, str], wanted: str
) -> None:
    """And the session keeps its settings."""
    with configured(spark, settings):
        run(query, 1)
        assert spark.conf.get(FORMAT, None) == settings.get(FORMAT)
    with configured(spark, ACCEPTED if PROVIDER in settings else {**IN_MEMORY, **ACCEPTED}):
        run(query, 3)
    assert query.values() == [1, 4]
    assert formats(query) == {wanted}
    assert spark.conf.get(FORMAT, None) is None


def test_where_no_store_is_named_it_is_rocksdb(query: Any, spark: SparkSession) -> None:
    """For this query alone, at each of its starts."""
    names = (PROVIDER, CHANGELOG)
    with configured(spark, dict.fromkeys(names, "")):
        for name in names:
            spark.conf.unset(name)
        for value in (1, 3):
            run(query, value)
        assert [spark.conf.get(name, None) for name in names] == [None, None]
    assert query.values() == [1, 4]
    assert formats(query) == {"v2"}
    assert list((query.checkpoint / "state").rglob("*.changelog"))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("settings", "wanted"), [({}, "v1"), (FORMAT_2, "v2")], ids=["format_1", "format_2"]
)
def test_a_checkpoint_that_another_one_began(
    query: Any, spark: SparkSession, settings: dict[str, str], wanted: str
) -> None:
    with configured(spark, ACCEPTED):
        with configured(spark, settings):
            run(query, 1, query.exactly_once().for_each_batch(checkpoint=query.checkpoint))
        run(query, 3)
    assert query.values() == [1, 4]
    assert formats(query) == {wanted}


@pytest.mark.deep
@pytest.mark.parametrize("settings", [IN_MEMORY, {}], ids=["in_memory", "rocksdb"])
def test_one_whose_first_batch_was_planned_and_not_done(
    query: Any, spark: SparkSession, settings: dict[str, str]
) -> None:
    """Spark goes on with the state store of its plan."""

    def fails(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("not yet")

    query.give(1)
    with configured(spark, settings):
        assert "not yet" in str(query.run(fails, transform=summed, mode="update"))
    with configured(spark, ACCEPTED if settings else {**IN_MEMORY, **ACCEPTED}):
        run(query, 3)
    assert query.values() == [1, 4]
    assert formats(query) == {"v1" if settings == IN_MEMORY else "v2"}
