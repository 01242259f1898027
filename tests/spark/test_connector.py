"""The connector of the installed PySpark: its own, else the newest of its minor line, else what to
install.

Ivy is the real one; the repository that it asks is a folder, so that what is published is known.
"""

from __future__ import annotations

import logging
import traceback
import zipfile
from pathlib import Path

import pytest
from pyspark import SparkContext

import exactum
from exactum.errors import LocalServerError
from exactum.java import jars
from exactum.spark import session
from exactum.spark.runtime import spark_jars
from exactum.spark.runtime.spark_jars import spark_kafka_jars

pytestmark = pytest.mark.slow

SETTINGS = """<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers>
    <chain name="here">
      <filesystem name="folder" m2compatible="true">
        <artifact pattern="{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
        <ivy pattern="{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].pom"/>
      </filesystem>
      {further}
    </chain>
  </resolvers>
</ivysettings>
"""
POM = """<project><modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId><artifactId>{module}</artifactId><version>{version}</version>
</project>"""
DEAD = '<ibiblio name="dead" m2compatible="true" root="http://127.0.0.1:1/"/>'
"""A repository that does not answer."""


class Published:
    """A repository in a folder, which has the connectors of these versions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = folder / "settings.xml"

    def write(self, *versions: str, further: str = "") -> None:
        for version in versions:
            place = self._folder.joinpath(*spark_jars.GROUP.split("."), spark_jars.MODULE, version)
            place.mkdir(parents=True)
            pom = POM.format(group=spark_jars.GROUP, module=spark_jars.MODULE, version=version)
            (place / f"{spark_jars.MODULE}-{version}.pom").write_text(pom)
            with zipfile.ZipFile(place / f"{spark_jars.MODULE}-{version}.jar", "w") as jar:
                jar.writestr("nothing", "")
        self.settings.write_text(SETTINGS.format(folder=self._folder, further=further))


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    repository = Published(tmp_path)
    monkeypatch.setenv("EXACTUM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EXACTUM_IVY_SETTINGS", str(repository.settings))
    monkeypatch.setattr(SparkContext, "_gateway", None)  # as before any test has started a session
    return repository


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """The installed PySpark is of this version from now on."""
    for module in (spark_jars, session):
        monkeypatch.setattr(module, "pyspark_version", lambda: version)


def test_own_version_comes_first(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PySpark's own version of the connector is published, no other is taken, also no
    newer one.
    """
    published.write("4.2.1", "4.2.9")
    install(monkeypatch, "4.2.1")
    assert spark_jars.connector_version(spark_kafka_jars()) == "4.2.1"


def test_newest_of_the_minor_line(
    published: Published, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A PySpark without a connector of its own reads with the newest of its minor line; the log
    says which.
    """
    published.write("4.1.9", "4.2.0-preview1", "4.2.0", "4.2.10", "4.3.0")
    install(monkeypatch, "4.2.11")
    found = spark_kafka_jars()
    assert spark_jars.connector_version(found) == "4.2.10"
    monkeypatch.setenv("JAVA_HOME", str(published.settings.parent / "no java here"))
    assert spark_kafka_jars() == found, "asked for only once"
    monkeypatch.delenv("JAVA_HOME")
    with caplog.at_level(logging.INFO, "exactum"):
        session._defaults({})
    (line,) = [
        record.getMessage() for record in caplog.records if "connector" in record.getMessage()
    ]
    assert line == "PySpark 4.2.11 reads Kafka with the connector of Spark 4.2.10"


@pytest.mark.deep
def test_no_connector_of_the_minor_line(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none, ``local_session`` ends in two frames, and the last line says what to
    install.
    """
    published.write("4.1.9", "4.2.7", "4.4.0", "4.3.0-preview1")
    install(monkeypatch, "4.3.1")
    with pytest.raises(LocalServerError) as failure:
        exactum.local_session("first")
    shown = "".join(traceback.format_exception(failure.value))
    assert shown.count("File ") == 2
    (last,) = [line for line in shown.splitlines() if "LocalServerError" in line]
    assert shown.splitlines()[-1] == last
    assert "PySpark 4.3.1" in last
    assert last.endswith("pip install 'pyspark<4.3'")
    assert "spark.jars" not in session._defaults({"spark.jars": "mine.jar"}), (
        "who has jars is asked for no others"
    )


@pytest.mark.deep
def test_silence_is_not_absence(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a repository does not answer, nobody settles for another version than PySpark's own."""
    published.write("4.2.7", further=DEAD)
    install(monkeypatch, "4.2.9")
    with pytest.raises(LocalServerError) as failure:
        spark_kafka_jars()
    assert not isinstance(failure.value, jars.NotPublished)
    assert "Connection refused" in str(failure.value)
    assert not list(published.settings.parent.glob("cache/jars/*/*.jar"))
