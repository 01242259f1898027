"""The jars with which the installed PySpark reads Kafka: of its own version, else the newest of its
minor line.

Not every release of PySpark has its connector in every repository. Within a minor line (4.2.0,
4.2.1) any connector works with any Spark; over lines it uses what may have changed.
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
    retrieved_now,
)

GROUP = "org.apache.spark"
MODULE = f"spark-sql-kafka-0-10_{SCALA_VERSION}"
OLDEST = "4.0.0"
# Some mirrors lack the token provider of newer Sparks; 4.0.0 serves all of 4.0 to 4.2.
TOKEN_PROVIDER_VERSION = "4.0.0"
_JAR = re.compile(rf"{re.escape(MODULE)}-(.+)\.jar")


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
    try:
        return cached(own)
    except NotPublished as missing:
        if MODULE not in str(missing):
            raise
    try:
        return cached(line)
    except NotPublished as missing:
        if MODULE not in str(missing):
            raise
        refusal = _refusal(version)
    raise LocalServerError(refusal)


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
    return next((match[1] for jar in jars if (match := _JAR.fullmatch(jar.name))), "")


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


def _refusal(version: str) -> str:
    """Why the installed PySpark cannot read Kafka, and which one to install."""
    minor = version.rpartition(".")[0]
    major, number = map(int, minor.split("."))
    before = f"{major}.{number - 1}" if number else f"{major - 1}.999"
    asked = dependency(GROUP, MODULE, f"[{OLDEST},{before}.999]").replace(
        "/>", ' transitive="false"/>'
    )
    newest = connector_version(retrieved_now(recipe(asked)))
    return (
        f"PySpark {version} is installed, and where Ivy looks there is no Kafka connector for it "
        f"({GROUP}:{MODULE}), neither {version} nor another {minor}. Where another repository has "
        "one, set EXACTUM_IVY_SETTINGS to an Ivy settings file that names it. Else install "
        + (
            f"the newest PySpark that has one: pip install 'pyspark=={newest}'"
            if newest
            else f"an earlier PySpark: pip install 'pyspark<{minor}'"
        )
    )
