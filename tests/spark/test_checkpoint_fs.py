"""The file system that writes local checkpoints: no process for a file, and otherwise as
Hadoop's own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from exactum.spark.runtime.spark_jars import CHECKPOINT_FS, CHECKPOINT_FS_SETTING
from tests.kit.python import python

pytestmark = pytest.mark.spark

SPARKS_OWN = "org.apache.hadoop.fs.local.LocalFs"
FORKED = ("readlink", "chmod")
JOB = """
import sys, exactum
own, spark_s = sys.argv[1:3]
session = exactum.local_session("forks", master="local[2]", **({} if own == "ours" else {sys.argv[3]: own}))
open(spark_s, "w").close()
stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
query = (
    stream.selectExpr("value % 5 AS key").groupBy("key").count()
    .writeStream.foreachBatch(lambda frame, _: frame.collect()).outputMode("update")
    .option("checkpointLocation", spark_s + "-checkpoint").trigger(processingTime="0 seconds").start()
)
while not query.lastProgress or query.lastProgress["batchId"] < 4:
    query.awaitTermination(0.05)
query.stop()
"""


def forks_of(folder: Path, own: str) -> list[str]:
    """What a stateful query of a few epochs starts, by programs that say so before they do what
    they should.
    """
    programs, log = folder / "programs", folder / "log"
    programs.mkdir(parents=True)
    for name in FORKED:
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\nexec /usr/bin/{name} "$@"\n')
        program.chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    python(JOB, own, folder / "up", CHECKPOINT_FS_SETTING, PATH=path)
    lines = log.read_text().splitlines() if log.exists() else []
    # A snapshot of state, some seconds apart and beside the epochs, is copied by another part of
    # Hadoop.
    return [line for line in lines if "up-checkpoint" in line and "/SSTs/" not in line]


@pytest.mark.deep
def test_no_process_is_started_for_a_checkpoint(tmp_path: Path) -> None:
    """With Spark's own there are dozens, so the count can fail."""
    assert len(forks_of(tmp_path / "sparks", SPARKS_OWN)) > 30
    assert forks_of(tmp_path / "ours", "ours") == []


@pytest.fixture(params=[CHECKPOINT_FS, SPARKS_OWN])
def files(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """Hadoop's FileContext on ``file:``, served by ours and by its own."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    conf.set(CHECKPOINT_FS_SETTING.removeprefix("spark.hadoop."), request.param)
    conf.set("fs.permissions.umask-mode", "027")
    return jvm.org.apache.hadoop.fs.FileContext.getFileContext(
        jvm.java.net.URI.create("file:///"), conf
    )


class Hadoop:
    """A few calls in Python."""

    def __init__(self, spark: SparkSession, files: Any) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self.files = files
        self.fs = self._jvm.org.apache.hadoop.fs

    def path(self, path: Path) -> Any:
        return self.fs.Path(f"file:{path}")

    def create(self, path: Path) -> None:
        flags = self._jvm.java.util.EnumSet.of(
            self.fs.CreateFlag.CREATE, self.fs.CreateFlag.OVERWRITE
        )
        stream = self.files.create(
            self.path(path), flags, self._options(self.fs.Options.CreateOpts, [])
        )
        stream.writeBytes(path.name)
        stream.close()

    def rename(self, old: Path, new: Path, *, overwrite: bool) -> None:
        how = self.fs.Options.Rename.OVERWRITE if overwrite else self.fs.Options.Rename.NONE
        self.files.rename(
            self.path(old), self.path(new), self._options(self.fs.Options.Rename, [how])
        )

    def _options(self, kind: Any, options: list[Any]) -> Any:
        array = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName(kind._fqn), len(options)
        )
        for index, option in enumerate(options):
            array[index] = option
        return array


def test_it_does_what_hadoops_own_does(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    """Permissions by the umask, renames that replace only when told, links that are followed,
    checksums.
    """
    hadoop = Hadoop(spark, files)
    folder = tmp_path / "real" / "folder"
    files.mkdir(hadoop.path(folder), hadoop.fs.permission.FsPermission.getDirDefault(), True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    (tmp_path / "link").symlink_to(folder)
    one, other = tmp_path / "link" / "one", tmp_path / "link" / "other"
    hadoop.create(one)
    assert stat.S_IMODE(one.stat().st_mode) == 0o640
    hadoop.rename(one, other, overwrite=False)
    assert (one.exists(), other.read_text()) == (False, "one")
    hadoop.create(one)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        hadoop.rename(one, other, overwrite=False)
    assert one.exists()
    hadoop.rename(one, other, overwrite=True)
    assert (one.exists(), other.read_text()) == (False, "one")
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        hadoop.rename(one, other, overwrite=True)
    linked = files.getFileLinkStatus(hadoop.path(tmp_path / "link"))
    assert (linked.isSymlink(), linked.isDirectory()) == (False, True), (
        "Hadoop's own sees no links either"
    )
    checksums = other.with_name(
        ".other.crc"
    )  # as Spark's copies of state have them, which it makes in another way
    checksums.write_bytes(b"")
    assert [
        status.getPath().getName() for status in files.util().listStatus(hadoop.path(folder))
    ] == ["other"]
    assert files.delete(hadoop.path(other), False)
    assert not other.exists()
    assert not checksums.exists(), "a checksum file goes with its file, or they would pile up"


@pytest.mark.parametrize("files", [CHECKPOINT_FS], indirect=True)
@pytest.mark.parametrize("overwrite", [False, True])
def test_checksums_of_a_file_that_is_gone(
    spark: SparkSession, files: Any, tmp_path: Path, overwrite: bool
) -> None:
    """A crash may leave them. Hadoop's own does not write the file any more, or cannot read it."""
    hadoop = Hadoop(spark, files)
    one, other = tmp_path / "one", tmp_path / "other"
    other.with_name(".other.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"\0\0\0\0")
    hadoop.create(one)
    hadoop.rename(one, other, overwrite=overwrite)
    stream = files.open(hadoop.path(other))
    assert stream.read() == ord("o")
    stream.close()
