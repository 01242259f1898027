"""What a folder of files says of a range of epochs, by reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.protocol.inspection import Evidence
from exactum.protocol.sink import Guarantee
from tests.kit.verify.recorded_query import RecordedQuery

ROWS = 7
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("parquet", {}),
    ("json", {"compression": "gzip"}),
    ("csv", {}),
    ("csv", {"header": False, "delimiter": ";", "compression": "gzip"}),
]


def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
    """Texts with line breaks and quotes, each of them one row."""
    texts = ["a\nb", 'c"d;,', None, "", "e\n\nf", "plain", "g"]
    days = [f"2026-01-0{1 + i % 2}" for i in range(ROWS)]
    return [[pa.record_batch({"text": texts, "day": days})] for _ in range(2)]


def query_of(folder: Path, kind: str, options: dict[str, Any]) -> RecordedQuery:
    """Into the folder ``out``."""

    def sink() -> FileSink:
        return FileSink(str(folder / "out"), format=kind, partition_by=["day"], options=options)

    columns = (("text", "string"), ("day", "string"))
    return RecordedQuery(folder / "checkpoint", {"files": (sink, columns, tasks)})


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_every_row_is_counted_once(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    """Whatever the values are: a line of CSV may be no record, and a record may be two lines."""
    query = query_of(tmp_path, kind, options)
    query.run([0, 1])
    kept = ROWS - (kind == "csv")  # the sink refuses a row that would be an empty line
    assert [(e.text, e.found) for e in query.evidence("files")] == [("exact", 2 * kept)] * 2


def test_missing_extra_and_in_doubt(tmp_path: Path) -> None:
    """A decided epoch that is staged is in doubt; a file that is gone is unknowable, since a
    compaction may have taken it, until its marker is gone, too; a file that no record names is
    extra.
    """
    query, out = query_of(tmp_path, "parquet", {}), tmp_path / "out"

    def look() -> list[Evidence]:
        return query.evidence("files")

    query.run([0, 1, 2], dies_after_decision=True)
    assert [e.text for e in look()] == ["exact", "exact", "in doubt"]
    query.run([2, 3])
    assert [e.text for e in look()] == ["exact"] * 4
    lost = sorted(out.rglob("day=*/part-0000000003-*"))[0]
    content = lost.read_bytes()
    lost.unlink()
    unknowable = look()[-1]
    assert unknowable.text == "unknowable"
    assert "were taken since" in unknowable.why
    for marker in (out / ".exactum").rglob("published-*"):
        marker.unlink()
    assert look()[-1].text.startswith("missing")
    twin = sorted(out.rglob("day=*/part-0000000003-*"))[0]  # it has as many rows
    (out / twin.name).write_bytes(twin.read_bytes())
    different = look()[-1]
    assert (different.text, different.found) == ("different", different.promised)
    (out / twin.name).unlink()
    lost.write_bytes(content)
    name = lost.name.split("-")
    stranger = lost.with_name("-".join([*name[:5], "0" * 16, *name[6:]]))
    stranger.write_bytes(content)
    extra = look()[-1]
    assert extra.text.startswith("extra")
    assert stranger.name in extra.why


@pytest.mark.parametrize("folder", ["_rejected", "_old/day=2026-01-01", ".kept"])
def test_what_readers_pass_over_is_not_counted(tmp_path: Path, folder: str) -> None:
    """The query's dead letters within the sink's folder, or files that somebody put aside: they are
    of the same batches, and no rows of this sink.
    """
    out, columns = tmp_path / "out", (("text", "string"), ("day", "string"))
    sinks = {"files": FileSink(out), "dead": FileSink(out / folder)}
    query = RecordedQuery(
        tmp_path / "checkpoint",
        {name: (lambda sink=sink: sink, columns, tasks) for name, sink in sinks.items()},
    )
    query.run([0, 1])
    for name in sinks:
        assert [(e.text, e.found) for e in query.evidence(name)] == [("exact", 2 * ROWS)] * 2
    (out / "_aside").mkdir()
    for file in out.glob("part-0000000001-*"):
        file.rename(out / "_aside" / file.name)
    assert [e.text for e in query.evidence("files")] == ["exact", "unknowable"]


def test_batches_that_were_begun_at_most_once(tmp_path: Path) -> None:
    """Their record promises no rows, and what is there is as it should be; not so a file of another
    guarantee.
    """
    query = query_of(tmp_path, "parquet", {})
    query.run([0])
    query.run([1, 2], guarantee=Guarantee.AT_MOST_ONCE)
    query.run([3])
    assert [e.text for e in query.evidence("files")] == ["exact", *["unknowable"] * 2, "exact"]
    begun = sorted((tmp_path / "out").rglob("part-0000000002-*"))[0]
    begun.with_name(begun.name.replace("-plain", "")).write_bytes(begun.read_bytes())
    assert query.evidence("files")[2].text.startswith("extra")
