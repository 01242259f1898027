"""``arrow_kafka``: Kafka topics through a function of Arrow batches, read by the Python workers
themselves where they can (docs/adr/0026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from exactum.errors import SettingRefused
from exactum.spark.jvm import arrow_job
from exactum.spark.source.read_kafka import Topics, source_frame

COLUMNS = ("key", "value")
Function = Callable[[Iterator[Any]], Iterator[Any]]


def arrow_kafka(
    spark: SparkSession,
    topics: Topics,
    *,
    bootstrap_servers: str,
    columns: Sequence[str] = COLUMNS,
    function: Function | None = None,
    schema: StructType | str | None = None,
    **options: Any,
) -> DataFrame:
    """A streaming frame of Kafka records, which the Python workers read by themselves: faster than
    ``read_kafka`` for a query that does nothing else than to copy records, or to call one Python
    function of Arrow batches.

    It is the frame ``read_kafka(...).select(columns).mapInArrow(function, schema)``, with the same
    checkpoint. Where the query cannot be read in this way, Spark reads it as it reads any other,
    and a warning says why. It can be read so:

    - on a local master (``local[4]``), by a session that has exactum's jar (``local_session`` has);
    - written by ``exactly_once`` or ``at_least_once``, with nothing added to the frame;
    - of the columns ``key``, ``value``, ``topic``, ``partition`` and ``offset``;
    - without ``stop=``, ``includeHeaders`` and ``failOnDataLoss=False``, and with ``kafka.*``
      options that librdkafka has as well.

    Args:
        spark: the session.
        topics: as for ``read_kafka``.
        bootstrap_servers: ``host:port`` or several, separated by commas.
        columns: which columns of ``read_kafka`` the function is given, or the sink where there is
            none; default key and value.
        function: is called once for each task with an iterator of ``pyarrow.RecordBatch``, and
            returns one, as that of ``mapInArrow``. A task has the records of one or several
            partitions; those of one partition come in order. Default: the records as they are.
        schema: the columns that the function returns, as a StructType or as text
            (``"key binary, value binary"``).
        options: all other arguments and options of ``read_kafka``.

    Raises:
        SettingRefused: ``function`` without ``schema`` or the other way round, or no such column;
            and as ``read_kafka``.
        Unavailable: as ``read_kafka``.
    """
    if (function is None) is not (schema is None):
        raise SettingRefused(
            "arrow_kafka: function= and schema= belong together: schema says what the function "
            "returns."
        )
    if function is not None and not callable(function):
        raise SettingRefused(f"arrow_kafka: function={function!r} cannot be called.")
    frame = source_frame(True, spark, topics, bootstrap_servers=bootstrap_servers, **options)
    chosen = frame.select(*_checked(columns, frame.columns))
    if function is None or schema is None:
        return chosen
    return arrow_job.applied(chosen, arrow_job.call(chosen.columns, function, schema))


def _checked(columns: Sequence[str], there: Sequence[str]) -> list[str]:
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise SettingRefused(
            f"arrow_kafka: columns={columns!r} must be a list of names, such as ['key', 'value']."
        )
    for name in columns:
        if name not in there:
            raise SettingRefused(
                f"arrow_kafka: there is no column {name!r}; there are {', '.join(there)}."
            )
    if len(set(columns)) < len(columns):
        raise SettingRefused(f"arrow_kafka: columns={list(columns)!r} names a column twice.")
    return list(columns)
