"""The wheel that is published: its files, its size and its metadata."""

from __future__ import annotations

import email
import email.message
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.kit.environment import ROOT
from tests.kit.packaging.metadata import built
from tests.kit.python import ran

BYTES_MAX = 1_500_000
"""1.3 MB at version 0.1.0. It goes to every executor of a cluster with ``--py-files``."""
SOURCE_BYTES_MAX = 3_000_000
SUFFIXES = {
    *(".py", ".typed", ".sql", ".jar", ".java", ".js", ".css", ".html", ".svg", ".txt", ".md"),
    *(".ini", ""),  # of the project that exactum init makes
    ".gz",  # the classes of a class archive
}
HOME = "https://example.org/somebody/exactum"


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), EXACTUM_HOME="")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    return metadata_of(wheel)


def test_the_index_shows_the_readme_with_links_that_lead_somewhere(tmp_path: Path) -> None:
    """It has no other file of the repository. Each link leads to a file of it at the version's tag,
    pictures to their content.
    """
    metadata = metadata_of(built(tmp_path, EXACTUM_HOME=f"{HOME}/"))
    text = str(metadata.get_payload())
    targets = re.findall(r"\]\(([^)]+)\)", text)
    tag = f"v{metadata['Version']}"
    assert len(targets) > 30
    for target in targets:
        assert target.startswith((f"{HOME}/blob/{tag}/", f"{HOME}/raw/{tag}/")), target
        path = target.partition(f"/{tag}/")[2].partition("#")[0]
        assert (ROOT / path).is_file(), target
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures == [f"{HOME}/raw/{tag}/docs/pictures/demo.svg"]
    named = dict(str(each).split(", ") for each in metadata.get_all("Project-URL") or [])
    assert named.keys() == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(HOME) for url in named.values())


def test_an_index_takes_what_is_built(tmp_path: Path) -> None:
    """Wheel and source: the metadata are well-formed, and the README can be shown. The source has
    what the wheel is made of, and the pages.
    """
    made = [built(tmp_path, kind, EXACTUM_HOME=HOME) for kind in ("wheel", "sdist")]
    done = ran([sys.executable, "-m", "twine", "check", "--strict", *made])
    assert done.stdout.count("PASSED") == 2
    with tarfile.open(made[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/exactum/__init__.py", "docs/quickstart.md", "hatch_build.py"} <= names
    assert made[1].stat().st_size < SOURCE_BYTES_MAX


def test_without_an_address_the_readme_is_that_of_the_repository(
    metadata: email.message.Message,
) -> None:
    assert metadata.get_all("Project-URL") is None
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text().strip()


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
    each = {extra: of_extra(metadata, extra) for extra in named - {"all"}}
    assert all(each.values())
    assert of_extra(metadata, "all") == set().union(*each.values())


def test_pyspark_comes_with_an_extra_alone(metadata: email.message.Message) -> None:
    base = of_extra(metadata, "")
    assert "confluent-kafka<3,>=2.11" in base
    assert not [each for each in base if each.startswith("pyspark")]
    assert of_extra(metadata, "spark") == {"pyspark<4.3,>=4.0"}
