"""How a local session comes by its jars: on the JVM's class path, or as ``spark.jars`` where the
class path is not exactum's to say; and by its classes, from the class archive.

Sessions start in processes of their own: this one's JVM runs already.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import exactum
from exactum.spark.session import _defaults
from exactum.spark.startup import class_archive
from tests.kit.python import python

LOCAL = {"spark.master": "local[2]"}
SESSION = """
import exactum
session = exactum.local_session(
    "class path", master="local[1]", **{"spark.exactum.warmWorkers": "false"}, **SETTINGS
)
context = session.sparkContext
names = ("checkpoint-fs", "columnar-kafka", "kafka-clients", "spark-sql-kafka")
for listed in (
    context._jvm.System.getProperty("java.class.path"), context._jsc.sc().listJars().toString()
):
    print(*(name for name in names if name in listed))
print(exactum.spark.source.columnar.kafka_format(session))
files = context._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
    context._jvm.java.net.URI("file:///"), context._jsc.hadoopConfiguration()
)
print(files.getDefaultFileSystem().getClass().getName())
assert session.range(5).count() == 5
runtime = context._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(*runtime.getInputArguments(), sep="\\n")
"""
FACTS = 4
"""Lines that say where its jars are; its JVM's options follow."""
SHARE_MIN = 0.8
"""Of the classes that a session loads: a list that fits no more is recorded anew."""


def said(settings: str) -> list[str]:
    return python(f"SETTINGS = {settings}\n{SESSION}").stdout.splitlines()


def shared_share(log: Path) -> float:
    """How many of the classes of Spark and Java that a JVM has loaded came from an archive."""
    loaded = re.findall(r"source: (shared objects file|jar:|file:|jrt:)", log.read_text())
    return loaded.count("shared objects file") / len(loaded)


@pytest.mark.deep
@pytest.mark.spark
def test_a_local_session_has_its_jars_on_the_class_path(tmp_path: Path) -> None:
    """The connector's; only exactum's own are sent to the tasks. Its JVM takes most of its classes
    from the class archive.
    """
    made = class_archive.make()  # the common one, unless it is there
    log = tmp_path / "loaded"
    told = said(repr({"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={log}"}))
    assert told[:FACTS] == [
        "kafka-clients spark-sql-kafka",
        "checkpoint-fs columnar-kafka",
        "exactum.ColumnarKafka",
        "exactum.CheckpointFs",
    ]
    assert set(class_archive.start_options(made)) <= set(told[FACTS:])
    assert shared_share(log) > SHARE_MIN


@pytest.mark.deep
@pytest.mark.spark
def test_a_class_path_of_the_users_own_is_left_to_the_user() -> None:
    """Spark brings the jars in its own way then, and everything works as well. Who else has a say
    in it is below.
    """
    assert said(repr({class_archive.CLASS_PATH: "/theirs.jar"}))[:FACTS] == [
        "",
        "checkpoint-fs columnar-kafka kafka-clients spark-sql-kafka",
        "exactum.ColumnarKafka",
        "exactum.CheckpointFs",
    ]


@pytest.fixture
def before_any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in class_archive.OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)


@pytest.mark.usefixtures("before_any_session")
def test_who_says_what_is_on_the_class_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_archive.owns_class_path(LOCAL)
    assert not class_archive.owns_class_path({"spark.master": "local-cluster[1,1,1024]"})
    assert not class_archive.owns_class_path({"spark.master": "spark://host:7077"})
    assert not class_archive.owns_class_path({**LOCAL, class_archive.CLASS_PATH: "/theirs.jar"})
    monkeypatch.setattr(SparkContext, "_gateway", object())
    assert not class_archive.owns_class_path(LOCAL), "the JVM runs"
    monkeypatch.setattr(SparkContext, "_gateway", None)
    for name in class_archive.OTHERS:
        with monkeypatch.context() as one:
            one.setenv(name, "/somewhere")
            assert not class_archive.owns_class_path(LOCAL), name


@pytest.mark.usefixtures("before_any_session")
def test_each_jar_is_named_once() -> None:
    local = _defaults(LOCAL)
    cluster = _defaults({"spark.master": "spark://host:7077"})
    assert class_archive.CLASS_PATH not in cluster
    named = [*local[class_archive.CLASS_PATH].split(os.pathsep), *local["spark.jars"].split(",")]
    assert named == cluster["spark.jars"].split(",")
    assert len(set(named)) == len(named)


@pytest.mark.usefixtures("settings_put_back")
def test_a_session_that_runs_keeps_its_jars(spark: SparkSession) -> None:
    """It is returned with what SQL can still take."""
    before = spark.conf.getAll
    again = exactum.local_session("again", master=spark.sparkContext.master)
    assert again is spark
    assert again.conf.get("spark.sql.shuffle.partitions") == "4"
    changed = {name for name, value in again.conf.getAll.items() if before.get(name) != value}
    assert all(name.startswith("spark.sql.") or name == "spark.app.name" for name in changed)
