"""That a query which is tested reads Kafka in columns, and did not go back to Spark's rows."""

from __future__ import annotations

from pyspark.sql import DataFrame

SOURCE = "exactum.ColumnarKafka"
SPARKS = "KafkaSourceProvider"
SPARK_VERSIONS = "4.2."
"""Where there is a columnar source; elsewhere the query must have found its way back."""


def in_columns(frame: DataFrame) -> DataFrame:
    """``frame``, whose plan names the source that this version of Spark is read with.

    Raises:
        AssertionError: it names another one.
    """
    plan = frame._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]
    source = SOURCE if frame.sparkSession.version.startswith(SPARK_VERSIONS) else SPARKS
    assert source in plan, plan
    return frame
