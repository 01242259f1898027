"""A SparkSession for one machine with everything in place: connector, interpreter, loopback, state
store.
"""

from __future__ import annotations

import logging
import os
import site
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import exactum
from exactum.errors import LocalServerError, SettingRefused
from exactum.java.jars import ClassArchive, pyspark_version
from exactum.java.program import spark_java_options
from exactum.spark.jvm import java_class
from exactum.spark.open_queries import refuse_while_importing
from exactum.spark.runtime import sockets, spark_jars
from exactum.spark.settings import CHANGELOG, PROVIDER, ROCKSDB
from exactum.spark.startup import class_archive, warm_up

logger = logging.getLogger("exactum")

ARROW_BATCH_BYTES = 2 * 2**20
"""Of one Arrow batch between the JVM and Python, about: a batch that is larger than a core's cache
is written to memory and read from there at every copy, and a task holds several. Spark's own limit
is 10,000 records, of any size."""
SHUFFLE_PARTITIONS = 4
"""Spark's default of 200 makes 200 state stores and 200 tasks for each micro-batch on one
machine.
"""

SNAPSHOTS_EVERY = "10s"
"""How often snapshots of state are uploaded. A start replays every change since the last one, a
file for each epoch and store: at Spark's default of 60 s that may take longer than all the rest of
the start."""


def local_session(app_name: str, *, master: str = "local[*]", **spark_conf: object) -> SparkSession:
    """A SparkSession on this machine that reads Kafka; any other session works with exactum as
    well.

    Where a session is running in this process already it is returned, as ``getOrCreate`` does, and
    only settings that Spark can change at run time take effect.

    The JVM starts with a class archive, where there is one: seconds earlier (docs/speed.md).
    Where there is none, a session that misses it has one made in the background, 200 MB in
    exactum's cache; ``exactum local class-archive`` makes it at once. Its options are in
    ``spark.driver.defaultJavaOptions``, which Spark puts before ``spark.driver.extraJavaOptions``.

    Args:
        app_name: shown in Spark's logs and UI.
        master: Spark's master; ``local[4]`` for four tasks at a time, ``local[4,2]`` to try a
            failing task twice.
        spark_conf: Spark settings; they win over the ones made here. Either Spark's own names,
            ``**{"spark.sql.shuffle.partitions": 8}``, or with underscores for dots,
            ``spark_sql_shuffle_partitions=8``. ``spark.exactum.warmWorkers=false`` leaves out the
            small job that starts Python workers in the background;
            ``spark.exactum.classArchive.enabled=false`` neither uses nor makes a class archive;
            ``spark.exactum.coalesceSmallEpochs.enabled=false`` leaves every epoch in the tasks that
            Spark plans; ``spark.exactum.columnarKafka.enabled=false`` reads Kafka row by row;
            ``spark.exactum.checkpoint.fsync=false`` lets a power cut take files of the
            checkpoint, some milliseconds an epoch faster.

    Raises:
        SettingRefused: a setting's name does not begin with ``spark``; or a command imports this
            script for its sinks; or ``spark-submit`` has started Spark's JVM already.
        LocalServerError: the connector's jars could not be fetched, or no connector is published
            for the installed PySpark; the message says which PySpark to install.
    """
    refuse_while_importing()
    _refuse_below_submit()
    settings = {setting_name(name): _text(value) for name, value in spark_conf.items()}
    given = {"spark.master": master, **settings}
    # Spark ignores spark.pyspark.python when it is set this late; the environment is what it reads.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    try:
        archive = class_archive.archive_for(given)
        defaults = _defaults(given, archive)
    except LocalServerError as error:
        raise error.with_traceback(None) from None  # how Ivy was run would bury what to do
    for name, value in {**defaults, **given}.items():
        builder = builder.config(name, value)
    warm_up.import_modules()
    session: SparkSession = builder.getOrCreate()
    # Makes Spark's coordinator of state stores, without which no state is read or repartitioned.
    session.streams  # noqa: B018
    if given.get(warm_up.SETTING, "true") == "true":
        warm_up.start_workers(session)
    return session


def setting_name(name: str) -> str:
    """Spark's name of a setting given as a keyword.

    Raises:
        SettingRefused: it is not one of Spark's.
    """
    if name.startswith("spark."):
        return name
    if name.startswith("spark_"):
        return name.replace("_", ".")
    raise SettingRefused(
        "SESSION_SETTING",
        f"local_session() has no setting {name!r}. Spark's settings begin with 'spark': write "
        '**{"spark.sql.shuffle.partitions": 8} or spark_sql_shuffle_partitions=8.',
    )


def _refuse_below_submit() -> None:
    """``spark-submit`` starts the JVM and names its port to the script (PySpark's
    ``java_gateway.py``): jars and options that are given to a session come too late.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ and not java_class.has_context():
        raise SettingRefused(
            "SESSION_BELOW_SUBMIT",
            "local_session() has jars, a master and options of its own, and spark-submit has "
            "started Spark's JVM without them.\nMake the session with "
            "SparkSession.builder.getOrCreate(), or run the script with python.",
        )


def _defaults(given: dict[str, str], archive: ClassArchive | None = None) -> dict[str, str]:
    defaults = {
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        PROVIDER: ROCKSDB,
        CHANGELOG: "true",
        "spark.sql.streaming.stateStore.maintenanceInterval": SNAPSHOTS_EVERY,
    }
    if java_class.has_context():
        return defaults  # the rest is of the JVM, and of who has started it
    defaults |= {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",  # a bar for each micro-batch tells nobody anything
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "exactum.spark.startup.daemon",
    }
    if sockets.ENABLED not in given:
        defaults |= sockets.socket_settings()
    if "spark.jars" not in given:
        jars = spark_jars.spark_kafka_jars()
        _report_connector(spark_jars.connector_version(jars))
        ours = [spark_jars.checkpoint_jar(), spark_jars.columnar_kafka_jar()]
        if class_archive.owns_class_path(given):
            defaults[class_archive.CLASS_PATH] = os.pathsep.join(map(str, jars))
            jars = []
        defaults["spark.jars"] = ",".join(map(str, [*jars, *ours]))
        defaults[spark_jars.CHECKPOINT_FS_SETTING] = spark_jars.CHECKPOINT_FS
        if archive is not None and (options := class_archive.start_options(archive)):
            defaults[class_archive.OPTIONS] = spark_java_options(options)
    package = _package_path()
    if package is not None:
        defaults["spark.executorEnv.PYTHONPATH"] = package
    return defaults


def _package_path() -> str | None:
    """What other Python processes need on their PYTHONPATH to import this very exactum: its folder
    and what this process was given, as absolute paths; None where it is installed.
    """
    folder = str(Path(exactum.__file__).resolve().parent.parent)
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    if folder in [str(Path(path).resolve()) for path in installed]:
        return None
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([folder, *map(os.path.abspath, given)])


def _report_connector(version: str) -> None:
    if version != pyspark_version():
        logger.info(
            "PySpark %s reads Kafka with the connector of Spark %s", pyspark_version(), version
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
