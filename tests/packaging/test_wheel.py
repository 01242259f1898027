"""The wheel that is published: its files, its size and its metadata."""

from __future__ import annotations

import email
import email.message
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.kit.environment import ROOT

BYTES_MAX = 1_300_000
"""1.06 MB at version 0.1.0. It goes to every executor of a cluster with ``--py-files``."""
SUFFIXES = {
    *(".py", ".typed", ".sql", ".jar", ".java", ".js", ".css", ".html", ".svg", ".txt", ".md"),
    *(".ini", ""),  # of the project that exactum init makes
}
EXTRAS = {
    *("spark", "postgres", "mysql", "objects", "avro", "protobuf", "state", "registry"),
    *("metrics", "dashboard", "otel", "lineage", "all"),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_it_stays_small(wheel: Path) -> None:
    assert 500_000 < wheel.stat().st_size < BYTES_MAX


def test_it_has_the_sources_and_nothing_else(wheel: Path) -> None:
    """Whatever a run leaves in ``src`` must not be published."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "exactum"
    there = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    own = {name for name in names if name.startswith("exactum/")}
    assert own == there
    assert {Path(name).suffix for name in own} <= SUFFIXES
    assert {name.partition("/")[2] for name in names - own} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
    }


def of_extra(metadata: email.message.Message, extra: str) -> set[str]:
    """Requirements of an extra; of the empty one, those of every install."""
    parts = [each.split("; extra == ") for each in metadata.get_all("Requires-Dist") or []]
    return {what for what, *named in parts if (named or ["''"])[0].strip("'") == extra}


def test_all_is_the_union_of_the_extras(metadata: email.message.Message) -> None:
    named = set(metadata.get_all("Provides-Extra") or [])
    assert named == EXTRAS
    each = {extra: of_extra(metadata, extra) for extra in named - {"all"}}
    assert all(each.values())
    assert of_extra(metadata, "all") == set().union(*each.values())


def test_pyspark_comes_with_an_extra_alone(metadata: email.message.Message) -> None:
    base = of_extra(metadata, "")
    assert "confluent-kafka<3,>=2.11" in base
    assert not [each for each in base if each.startswith("pyspark")]
    assert of_extra(metadata, "spark") == {"pyspark<4.3,>=4.0"}


def test_it_tells_an_index_what_it_is(metadata: email.message.Message) -> None:
    assert metadata["Name"] == "exactum"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Author"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# exactum")
