"""``exactum init``: the project works as it is made, with the commands of its Makefile."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum import __version__
from exactum.errors import SettingRefused
from exactum.local import LocalKafka
from exactum.ops import cli
from exactum.ops.project.project import FILES, TEMPLATE, make_project
from tests.kit.errors import raised
from tests.kit.kafka.named import in_turn, topics_named


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "shout")


def test_the_command_makes_every_file_and_says_what_to_do_next(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["init", str(tmp_path / "a" / "new project")])
    assert done.exit_code == 0, done.output
    made = tmp_path / "a" / "new project"
    assert sorted(path.name for path in made.iterdir()) == sorted(FILES)
    assert f"    cd '{made}'" in done.output
    assert "make test" in done.output
    assert f"exactum[spark]=={__version__}\n" in (made / "requirements.txt").read_text()


def test_a_folder_that_begins_with_a_dash_can_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.main, ["init", "--", "-new"])
    (line,) = (line for line in done.output.splitlines() if line.startswith("    cd "))
    entered = ["sh", "-c", f"{line} && cat requirements.txt"]
    assert "exactum[spark]" in subprocess.check_output(entered, cwd=tmp_path, text=True)


def test_a_terminal_without_the_environment_is_told_what_to_do(project: Path) -> None:
    """The one mistake that everybody makes who opens a second terminal."""
    own = {"PATH": "/usr/bin:/bin"}
    assert shutil.which("exactum", path=own["PATH"]) is None
    for target in ("install", "servers", "run", "send", "read", "verify", "test"):
        done = subprocess.run(
            ["make", target], cwd=project, env=own, text=True, capture_output=True, check=False
        )
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("In this terminal exactum is not on the PATH. Activate")
    subprocess.run(["make", "help"], cwd=project, env=own, check=True)


@pytest.mark.usefixtures("modules")
def test_a_kafka_without_the_topics_is_named(kafka: LocalKafka) -> None:
    """Sending would say nothing: the producer's flush does not tell of records that were refused."""
    orders = importlib.import_module("orders")
    none = f"{kafka.bootstrap_servers} has no topic orders and no"
    with in_turn(), pytest.raises(SystemExit, match=none):
        orders.count_sent(kafka.bootstrap_servers)
    with topics_named(kafka, "orders", partitions=1):
        with pytest.raises(SystemExit, match="has no topic shouted. Make it first"):
            orders.count_sent(kafka.bootstrap_servers)


def test_every_file_of_the_template_is_used() -> None:
    there = {path.name for path in TEMPLATE.iterdir() if path.is_file()}
    assert there == set(FILES.values())


def test_only_an_empty_folder_is_taken(tmp_path: Path) -> None:
    """Nothing else is written into, or changed."""
    (tmp_path / "empty").mkdir()
    assert (make_project(tmp_path / "empty") / "Makefile").is_file()
    (tmp_path / "file").write_text("mine")
    done = CliRunner().invoke(cli.main, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{tmp_path} is not empty. Nothing was written." in done.output
    with raised(SettingRefused, "PROJECT_FOLDER", tmp_path / "file"):
        make_project(tmp_path / "file")
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}
    assert (tmp_path / "file").read_text() == "mine"


def test_where_one_file_cannot_be_written_nothing_is_left(tmp_path: Path) -> None:
    """A path so long that ``job.py`` still fits in it, and ``requirements.txt`` does not."""
    path_max = os.pathconf(tmp_path, "PC_PATH_MAX") - 1
    folder, left = tmp_path / "long", path_max - len(str(tmp_path / "long")) - len("/orders.py")
    while left > 200:
        folder, left = folder / ("x" * 100), left - 101
    folder /= "x" * (left - 1)
    with raised(SettingRefused, "PROJECT_FOLDER", folder):
        make_project(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def modules(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's modules can be imported, and are forgotten afterwards."""
    names = [name.removesuffix(".py") for name in FILES if name.endswith(".py")]
    monkeypatch.syspath_prepend(str(project))
    yield
    for name in names:
        sys.modules.pop(name, None)
