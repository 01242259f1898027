"""What a query leaves for its next start: numbered files, of which the newest counts. What cannot be
read is not taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from exactum.checkpoint.layout import QUERY, REPLAYS, RUNS
from exactum.checkpoint.query_record import (
    KnownSink,
    KnownTopic,
    QueryRecord,
    RecordFile,
    record_of,
)
from exactum.checkpoint.run_file import runs
from exactum.errors import CheckpointRefused, ExactumError, SettingRefused, Unavailable
from exactum.ops.dead_letters.replay import inherited
from exactum.protocol.ends import Noted
from exactum.spark.jvm.hadoop import HadoopFiles
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.python import python
from tests.kit.query_record import damage, newest, note, on_file

ID = "q"
FULL = QueryRecord(
    query_id=ID,
    decision_log="/data/log",
    log_id="a",
    noted=Noted(first=3, decided=7, accepted=1, undecided_from=9),
    staging="s3://bucket/rows",
    sinks=(KnownSink("kafka:out", {"kafka": "c"}), KnownSink("old", {}, present=False)),
    topics={"0": {"orders": KnownTopic("id", 2), "older": KnownTopic(None, 1)}},
    settings={"spark.sql.ansi.enabled": "true"},
)


def files(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / QUERY).iterdir())


def test_what_is_noted_is_read_again(tmp_path: Path) -> None:
    """Nothing is written by a look, nor where nothing is new; of old files the last one stays."""
    record = record_of(Folder(tmp_path), ID)
    assert record.content == QueryRecord(query_id=ID) and not (tmp_path / QUERY).exists()
    record.change(lambda _: FULL)
    record.change(lambda _: FULL)
    assert files(tmp_path) == ["0.json"]
    assert record_of(Folder(tmp_path), ID).content == FULL == record.content
    assert record.content.present == {"kafka:out"}
    for staging in "abc":
        record.change(lambda now, to=staging: replace(now, staging=to))
    assert files(tmp_path) == ["2.json", "3.json"]
    assert on_file(tmp_path) == replace(FULL, staging="c")


def test_who_writes_keeps_what_others_wrote(tmp_path: Path) -> None:
    """Another driver, that this one does not know of, or another thread."""
    one, other = record_of(Folder(tmp_path), ID), record_of(Folder(tmp_path), ID)

    def topic(record: RecordFile, name: str) -> None:
        record.change(lambda now: replace(now, topics={**now.topics, name: {}}))

    other.change(lambda now: replace(now, log_id="b"))
    one.change(lambda now: replace(now, staging="s"))
    assert (one.content.log_id, one.content.staging) == ("b", "s")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(topic, [one, other] * 4, map(str, range(8))))
    assert len(record_of(Folder(tmp_path), ID).content.topics) == 8


def test_who_writes_late_is_not_lost(tmp_path: Path) -> None:
    """The number that it would take was taken and swept since."""
    late = record_of(Folder(tmp_path), ID)
    for staging in "abcde":
        note(tmp_path, ID, staging=staging)
    late.change(lambda now: replace(now, log_id="late"))
    found = record_of(Folder(tmp_path), ID).content
    assert (found.log_id, found.staging) == ("late", "e")
    assert files(tmp_path) == ["4.json", "5.json"]


def test_another_querys(tmp_path: Path) -> None:
    note(tmp_path, "parent", log_id="a")
    with raised(CheckpointRefused, "CHECKPOINT_OTHER_QUERY", "parent", ID):
        record_of(Folder(tmp_path), ID)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"version": 1}', b"[]"])
def test_what_is_damaged(tmp_path: Path, text: bytes) -> None:
    """The query is not taken for a new one. Where somebody removes it, the one before it counts."""
    note(tmp_path, ID, staging="a")
    note(tmp_path, ID, staging="b")
    newest(tmp_path).write_bytes(text)
    with raised(CheckpointRefused, "CHECKPOINT_DAMAGED", newest(tmp_path), "delete"):
        record_of(Folder(tmp_path), ID)
    newest(tmp_path).unlink()
    assert on_file(tmp_path).staging == "a"


def test_of_a_newer_exactum(tmp_path: Path) -> None:
    note(tmp_path, ID, staging="a")
    damage(tmp_path, '{"version": 2, "query_id": "q"}')
    with raised(CheckpointRefused, "RECORD_VERSION", newest(tmp_path), 2):
        record_of(Folder(tmp_path), ID)


# ---- file systems --------------------------------------------------------------------------------

NO_ROOM = """
import resource, sys
from pathlib import Path
from msgspec.structs import replace
from exactum.checkpoint.query_record import record_of
from exactum.errors import Unavailable
from exactum.storage.folder import Folder
record = record_of(Folder(Path(sys.argv[1])), "q")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    record.change(lambda now: replace(now, log_id="a"))
except Unavailable as error:
    sys.exit(0 if sys.argv[1] in str(error) else f"unclear: {error}")
sys.exit("it was taken")
"""


def test_a_disk_that_takes_nothing_may_be_tried_again(tmp_path: Path) -> None:
    """A supervisor starts such a query again; no half file is left."""
    python(NO_ROOM, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def a_file(place: Path) -> None:
    place.write_text("in the way")


def a_loop(place: Path) -> None:
    """The file system answers with an error, whoever asks."""
    place.symlink_to(place)


@pytest.mark.parametrize(
    ("make", "error", "code"),
    [(a_file, SettingRefused, ("FOLDER_ACCESS",)), (a_loop, Unavailable, ())],
    ids=["file", "loop"],
)
def test_a_folder_that_cannot_be_read(
    tmp_path: Path, make: Callable[[Path], None], error: type[ExactumError], code: tuple[str, ...]
) -> None:
    (tmp_path / QUERY).parent.mkdir()
    make(tmp_path / QUERY)
    with raised(error, *code, tmp_path / QUERY):
        record_of(Folder(tmp_path), ID)


@pytest.mark.parametrize("make", [a_file, a_loop], ids=["file", "loop"])
def test_who_runs_and_what_was_sent_is_not_known(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / RUNS).parent.mkdir(parents=True)
    assert runs(Folder(tmp_path)) == [] and inherited(Folder(tmp_path)) == {}
    make(tmp_path / RUNS)
    make(tmp_path / REPLAYS)
    with raised(CheckpointRefused, "CHECKPOINT_ACCESS", tmp_path / RUNS):
        runs(Folder(tmp_path))
    with raised(CheckpointRefused, "CHECKPOINT_ACCESS", tmp_path / REPLAYS):
        inherited(Folder(tmp_path))


@pytest.mark.spark
def test_where_only_hadoop_gets(spark: SparkSession, tmp_path: Path) -> None:
    """As in a folder: read by a later start, merged, and swept."""

    def record() -> RecordFile:
        return RecordFile(HadoopFiles(spark, where), ID)

    where = f"file://{tmp_path}/check point/{QUERY}"
    one, other = record(), record()
    one.change(lambda _: FULL)
    other.change(lambda now: replace(now, staging="b"))
    for staging in "cd":
        one.change(lambda now, to=staging: replace(now, staging=to))
    assert record().content == replace(FULL, staging="d")
    seen = [name for name in files(tmp_path / "check point") if not name.startswith(".")]
    assert seen == ["2.json", "3.json"]


@pytest.mark.spark
def test_a_store_that_does_not_answer(spark: SparkSession) -> None:
    """A supervisor starts such a query again; nobody has to read a page of Java for it."""
    java = spark.sparkContext._jsc.hadoopConfiguration()
    java.set("ipc.client.connect.max.retries", "0")
    where = "hdfs://127.0.0.1:1/checkpoint/exactum/query"
    storage = HadoopFiles(spark, where)
    for ask in (
        lambda: RecordFile(storage, ID),
        lambda: storage.read("0.json"),
        lambda: storage.create_if_absent("0.json", b"{}"),
    ):
        with raised(Unavailable, where, "ConnectException") as caught:
            ask()
        assert "\tat " not in str(caught.value), "not a trace"
