"""The jars that a session names: Spark's Kafka connector, and two that the wheel carries.

The connector is of the installed PySpark's own version, else the newest of its minor line. Not
every release of PySpark has its connector in every repository. Within a minor line (4.2.0, 4.2.1)
any connector works with any Spark; over lines it uses what may have changed.

The wheel's jars lie beside their sources, compiled; a JVM reads them where they lie:

    checkpoint-fs.jar   Spark writes local checkpoints without starting processes, and fsyncs them.
                        Hadoop runs readlink and chmod some ten times for each file that Spark
                        writes to a checkpoint, and each epoch writes two files and more: a quarter
                        of a small epoch (docs/performance.md). And it fsyncs nothing, so that a
                        power cut may take what a recorded decision rests on (docs/adr/0021, 0023).
    columnar-kafka.jar  Spark's Kafka source, read in columns (docs/adr/0025), and no further than
                        to a stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.java.jars import (
    SCALA_VERSION,
    JarSet,
    NotPublished,
    artifact_name,
    cached,
    dependency,
    jar_folder,
    pyspark_jars,
    pyspark_version,
    recipe,
)

GROUP = "org.apache.spark"
MODULE = f"spark-sql-kafka-0-10_{SCALA_VERSION}"
# Some mirrors lack the token provider of newer Sparks; 4.0.0 serves all of 4.0 to 4.2.
TOKEN_PROVIDER_VERSION = "4.0.0"
_CONNECTOR = re.compile(rf"{re.escape(MODULE)}-(.+)\.jar")

CHECKPOINT_FS = "exactum.CheckpointFs"
CHECKPOINT_FS_SETTING = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""Which class serves ``file:`` for those who use Hadoop's FileContext. Of what Spark does, that
is its checkpoints.
"""
CHECKPOINT_FS_JAR = Path(__file__).with_name("checkpoint-fs.jar")
FORMAT = "exactum.ColumnarKafka"
"""The class, and so the name for ``spark.readStream.format``."""
SPARK_VERSIONS = ("4.2.",)
"""What versions begin with whose connector has the parts that the classes use, as tests saw it."""
COLUMNAR_KAFKA_JAR = Path(__file__).with_name("columnar-kafka.jar")


def checkpoint_jar() -> Path:
    """The jar that ``spark.jars`` must name for Spark to write checkpoints with exactum's class.

    Raises:
        LocalServerError: exactum was imported from an archive, and the JVM cannot read the jar in
            it.
    """
    return _carried(CHECKPOINT_FS_JAR)


def columnar_kafka_jar() -> Path:
    """The jar that ``spark.jars`` must name for ``read_kafka`` to read in columns, or to a stop.

    Raises:
        LocalServerError: exactum was imported from an archive, and the JVM cannot read the jar in
            it.
    """
    return _carried(COLUMNAR_KAFKA_JAR)


def _carried(jar: Path) -> Path:
    if not jar.is_file():
        raise LocalServerError(
            f"{jar} is no file, so the JVM cannot load what is in it. Install exactum's wheel "
            "where the driver runs, instead of importing it from an archive."
        )
    return jar


def spark_kafka_jars() -> list[Path]:
    """Return the jars that `spark.jars` must name for the installed PySpark to read Kafka.

    They are retrieved at the first call (some 10 s) and taken from the cache later. What PySpark
    carries itself is not among them. The connector is PySpark's own version, or where that is not
    published the newest of the same minor line.

    Raises:
        LocalServerError: no connector is published for the installed PySpark's minor line, and
            which PySpark to install; or the jars could not be retrieved.
    """
    version = pyspark_version()
    own, line = _own(version), _line(version)
    if jar_folder(line).is_dir() and not jar_folder(own).is_dir():
        return cached(line)
    for jars in (own, line):
        try:
            return cached(jars)
        except NotPublished as missing:
            if MODULE not in str(missing):
                raise
    minor = version.rpartition(".")[0]
    raise LocalServerError(
        f"PySpark {version} is installed, and where Ivy looks there is no Kafka connector for it "
        f"({GROUP}:{MODULE}), neither {version} nor another {minor}. Where another repository has "
        "one, set EXACTUM_IVY_SETTINGS to an Ivy settings file that names it. Else install an "
        f"earlier PySpark: pip install 'pyspark<{minor}'"
    )


def kept_connector() -> Path | None:
    """Return the folder in the cache with the installed PySpark's connector; None where there is
    none yet. Fetches nothing.

    Raises:
        LocalServerError: no PySpark is installed, or one without jars.
    """
    version = pyspark_version()
    folders = (jar_folder(_own(version)), jar_folder(_line(version)))
    return next((folder for folder in folders if folder.is_dir()), None)


def connector_version(jars: Iterable[Path]) -> str:
    """Return the version of the connector among ``jars``; empty where there is none."""
    return next((match[1] for jar in jars if (match := _CONNECTOR.fullmatch(jar.name))), "")


def _own(version: str) -> JarSet:
    return JarSet("spark", version, f"Spark's Kafka connector {version}", _recipe(version))


def _line(version: str) -> JarSet:
    minor = version.rpartition(".")[0]
    purpose = (
        f"the newest of Spark's Kafka connectors {minor}, since none is published for PySpark "
        f"{version}"
    )
    # From .0 on, which is newer than a preview of it.
    return JarSet("spark", version, purpose, _recipe(f"[{minor}.0,{minor}.999]"))


def _recipe(revision: str) -> str:
    # Ivy is told what PySpark has, so that it neither fetches it (70 MB) nor doubles a class path.
    shipped = sorted({artifact_name(jar.name) for jar in pyspark_jars().glob("*.jar")})
    return recipe(
        dependency(GROUP, MODULE, revision),
        *(f'<exclude module="{name}"/>' for name in shipped),
        f'<override org="{GROUP}" module="spark-token-provider-kafka-0-10_{SCALA_VERSION}" '
        f'rev="{TOKEN_PROVIDER_VERSION}"/>',
    )
