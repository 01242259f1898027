"""What is not a whole savepoint is refused, by every command, and what is wrong is said."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.savepoint.create import create
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.files.slot_log import slot_name
from exactum.ops import cli
from tests.kit.errors import raised
from tests.kit.spark.commit_log import last_batch
from tests.kit.spark.query import Query, summed

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a query with state that has run for a few epochs. Not to be changed."""
    query = Query(spark, tmp_path_factory.mktemp("whole"))
    query.give(*range(20), batches=4)
    assert query.run(query.exactly_once(), transform=summed, mode="update") is None
    return query.checkpoint


@pytest.fixture
def savepoint(checkpoint: Path, tmp_path: Path) -> Path:
    create(str(checkpoint), tmp_path / "savepoint")
    return tmp_path / "savepoint"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["savepoint", *arguments])


def test_a_whole_one_is_shown_and_deleted(savepoint: Path, tmp_path: Path) -> None:
    """inspect shows what it is, verify finds it whole, delete leaves nothing."""
    shown = run("inspect", str(savepoint))
    assert shown.exit_code == 0
    manifest = json.loads((savepoint / "manifest.json").read_text())
    for text in (manifest["query_id"], "stateStoreSave", "goes on at", "size of state"):
        assert text in shown.output
    verified = run("verify", str(savepoint))
    assert verified.exit_code == 0
    assert f"epoch {manifest['batch_id']}" in verified.output
    assert run("delete", str(savepoint)).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def refused(savepoint: Path, said: str) -> None:
    """verify, with status 1, and restore, with 2, say what is wrong; restore makes nothing."""
    new = savepoint.parent / "new"
    verified = run("verify", str(savepoint))
    restored = run("restore", str(savepoint), "--checkpoint", str(new))
    assert (verified.exit_code, restored.exit_code) == (1, 2)
    assert all(said in " ".join(result.stderr.split()) for result in (verified, restored))
    assert not new.exists()


STATE, OFFSETS, MANIFEST = "checkpoint/state/**/*.*", "checkpoint/offsets/*", "manifest.json"
DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes | None], str]] = {
    "flipped": (
        STATE,
        lambda it: it[:9] + bytes([it[9] ^ 1]) + it[10:],
        "has other bytes than it had",
    ),
    "shortened": (STATE, lambda it: it[:-1], "bytes"),
    "one missing": (OFFSETS, lambda it: None, "is missing"),
    "one more": ("checkpoint/offsets/999", lambda it: b"v1", "does not belong to it"),
    "cut off": (MANIFEST, lambda it: it[:-200], "cannot be read"),
    "edited": (MANIFEST, lambda it: it.replace(b'"batch_id": ', b'"batch_id": 1'), "was changed"),
    "newer": (MANIFEST, lambda it: it.replace(b'"format": 1', b'"format": 2'), "has format 2"),
    "unfinished": (MANIFEST, lambda it: None, "is not a savepoint"),
}
"""Which file of it (the largest of several), what becomes of its content, and what is said."""


@pytest.mark.parametrize(("file", "damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_one_is_refused(
    savepoint: Path, file: str, damage: Callable[[bytes], bytes | None], said: str
) -> None:
    found = [path for path in savepoint.glob(file) if path.is_file()]
    path = max(found, key=lambda path: path.stat().st_size, default=savepoint / file)
    damaged = damage(path.read_bytes() if found else b"")
    path.unlink() if damaged is None else path.write_bytes(damaged)
    refused(savepoint, said)


Lose = Callable[[Path, int], None]
"""From a copy of the checkpoint, and the version that its state has."""


def folder(name: str) -> Lose:
    return lambda damaged, version: shutil.rmtree(damaged / name)


def one_version(damaged: Path, version: int) -> None:
    for path in (damaged / "state/0/1").glob(f"{version}[._]*"):  # an id stands between
        path.unlink()


def empty_version(damaged: Path, version: int) -> None:
    for path in (damaged / "state/0/1").glob(f"{version}_*"):  # its change, and a snapshot of it
        path.write_bytes(b"")


def newest_decision(damaged: Path, version: int) -> None:
    (damaged / DECISIONS / slot_name(version - 1, 1)).unlink(missing_ok=True)
    (damaged / DECISIONS / slot_name(version - 1, 0)).unlink()


def decision_of_another(damaged: Path, version: int) -> None:
    newest, before = (damaged / DECISIONS / slot_name(version - n, 0) for n in (1, 2))
    newest.write_bytes(before.read_bytes())


def all_decisions(damaged: Path, version: int) -> None:
    shutil.rmtree(damaged / DECISIONS)
    (damaged / "offsets" / str(version)).unlink(missing_ok=True)  # else it is in doubt


def log_id(damaged: Path, version: int) -> None:
    (damaged / DECISIONS / "log-id").write_bytes(b"\x00\xff")


def offsets(damaged: Path, version: int) -> None:
    (damaged / "offsets" / str(version - 1)).write_bytes(b"\x00\xff" * 40)


LOSSES: dict[str, tuple[Lose, str, str]] = {
    "one version": (one_version, "SAVEPOINT_DAMAGED", "version"),
    "one partition": (folder("state/0/1"), "SAVEPOINT_DAMAGED", "partition"),
    "empty version": (empty_version, "SAVEPOINT_DAMAGED", "version"),
    "one operator": (folder("state/0"), "SAVEPOINT_DAMAGED", "state/0"),
    "all state": (folder("state"), "SAVEPOINT_DAMAGED", "state/0"),
    "description": (folder("state/0/_metadata"), "SAVEPOINT_DAMAGED", "state/0/_metadata"),
    "newest decision": (newest_decision, "DECISION_LOG_DAMAGED", "no COMMIT"),
    "decision of another": (decision_of_another, "DECISION_LOG_DAMAGED", "damaged"),
    "all decisions": (all_decisions, "DECISION_LOG_OTHER", "empty"),
    "log id": (log_id, "DECISION_LOG_OTHER", "in the checkpoint"),
    "offsets": (offsets, "CHECKPOINT_DAMAGED", "no text"),
}


@pytest.mark.parametrize(("lose", "code", "said"), LOSSES.values(), ids=LOSSES)
def test_a_damaged_checkpoint_makes_no_savepoint(
    checkpoint: Path, tmp_path: Path, lose: Lose, code: str, said: str
) -> None:
    """What is not all there, of the state or of the decisions, is found when the savepoint is made,
    not when it is needed.
    """
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpoint, damaged)
    lose(damaged, last_batch(damaged) + 1)
    with raised(CheckpointRefused, code, damaged, said):
        create(str(damaged), tmp_path / "savepoint")
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


@pytest.mark.parametrize("place", ["", "offsets", "checkpoint"])
def test_only_a_savepoint_is_deleted(savepoint: Path, tmp_path: Path, place: str) -> None:
    """Any other folder is left as it is; so is a savepoint with a stranger's file in it."""
    target = savepoint / place if place else tmp_path
    if place == "":
        (savepoint / "notes.txt").write_text("mine")
        assert run("delete", str(savepoint)).exit_code == 2
    assert run("delete", str(target)).exit_code == 2
    assert (savepoint / "manifest.json").exists()


@pytest.mark.parametrize(
    ("checkpoint_text", "said"),
    [
        ("hdfs://node/orders", "shared file system"),
        ("/nonexistent/orders", "checkpointLocation"),
    ],
)
def test_what_cannot_be_saved_is_said(tmp_path: Path, checkpoint_text: str, said: str) -> None:
    """A place that is no local checkpoint is refused at once."""
    with raised(SettingRefused, "CHECKPOINT_FOLDER", checkpoint_text, said):
        create(checkpoint_text, tmp_path / "savepoint")


def _named(savepoint: Path, old: str, new: str) -> None:
    """A manifest that was edited by somebody who knows how its digest is made."""
    path = savepoint / "manifest.json"
    value = json.loads(path.read_text())
    for file in value["files"]:
        if file["path"] == old:
            file["path"] = new
    del value["digest"]
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**value, "digest": digest}))


@pytest.mark.parametrize(
    "outside",
    ["../../precious", "/{tmp}/precious", "state/../../../precious", "./metadata", "a//b"],
)
def test_a_path_that_leads_out_of_it(savepoint: Path, tmp_path: Path, outside: str) -> None:
    """verify and restore refuse a manifest whose paths leave the savepoint, whatever bytes the
    file there has.
    """
    (tmp_path / "precious").write_bytes((savepoint / "checkpoint" / "metadata").read_bytes())
    _named(savepoint, "metadata", outside.replace("{tmp}", str(tmp_path)[1:]))
    refused(savepoint, "names a file outside of it")


@pytest.mark.parametrize("what", ["metadata", "state", ""])
def test_a_symbolic_link(savepoint: Path, tmp_path: Path, what: str) -> None:
    """A file or folder of a savepoint that is a link to elsewhere is refused, whatever it leads
    to.
    """
    place = savepoint / "checkpoint" / what if what else savepoint / "checkpoint"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    refused(savepoint, "is a symbolic link")
