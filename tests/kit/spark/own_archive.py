"""A cache of a test's own with the jars of the common one, and no class archive."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from exactum.java.jars import ClassArchive, cache_folder
from exactum.spark.runtime.spark_jars import spark_kafka_jars
from exactum.spark.startup import class_archive
from exactum.spark.startup.class_archive import spark_archive

FEW_CLASSES = "java/lang/Object\njava/lang/String\norg/apache/spark/SparkConf\n"


def archive_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """The archive of a cache in ``folder``, which is this process's cache from now on; not made."""
    spark_kafka_jars()  # they may not have been retrieved yet
    cache = folder / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_folder() / "jars")
    monkeypatch.setenv("EXACTUM_CACHE", str(cache))
    return spark_archive()


def list_few_classes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process makes archives of a few classes, within a second."""
    listed = folder / "few.txt.gz"
    listed.write_bytes(gzip.compress(FEW_CLASSES.encode()))
    monkeypatch.setattr(class_archive, "CLASSES", listed)
