"""Object stores: that a decision log can be kept in one, and that files can, is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.doctor.diagnosis import diagnosed
from tests.kit.files.s3_server import S3Server, s3_server


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Settings come from the environment, as they do for a query."""
    with s3_server(request.param) as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(f"AWS_{name.upper()}", str(value).lower())
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "correct-horse")
        yield server


@pytest.mark.parametrize("store", ["kept"], indirect=True)
def test_a_store_that_keeps_to_conditions(store: S3Server, tmp_path: Path) -> None:
    """Nothing is left in it."""
    store.objects["table/part-0.parquet"] = b"kept"
    sink = f"exactum.FileSink('s3://bucket/table', store={store.settings!r})"
    options = ("--decision-log", "s3://bucket/decisions")
    found = diagnosed(*options, sinks=sink, folder=tmp_path)
    assert found.all_is_well(), found.output
    assert found.has("ok", "decision log", "a second one was refused")
    assert found.has("ok", "files:s3://bucket/table", "replaced, listed and removed")
    assert found.has("ok", "files:s3://bucket/table", "clock of the store")
    assert store.objects == {"table/part-0.parquet": b"kept"}
    assert "correct-horse" not in found.output


@pytest.mark.parametrize("store", ["ignored", "raced"], indirect=True)
def test_a_store_that_does_not(store: S3Server) -> None:
    """Two drivers would both believe their decision."""
    found = diagnosed("--decision-log", "s3://bucket/decisions")
    assert found.has("error", "decision log", "does not keep to conditional puts")
    assert found.status == 1
    assert store.objects == {}


@pytest.mark.parametrize("store", ["kept"], indirect=True)
def test_a_prefix_of_delta_lake(store: S3Server, tmp_path: Path) -> None:
    store.objects["table/_delta_log/0.json"] = b"{}"
    sink: Any = f"exactum.FileSink('s3://bucket/table', store={store.settings!r})"
    found = diagnosed(sinks=sink, folder=tmp_path)
    assert found.has("error", "files:", "_delta_log")


@pytest.mark.parametrize("store", ["kept"], indirect=True)
def test_a_staging_in_a_store(store: S3Server) -> None:
    """What waits there is counted, and nothing is left behind."""
    store.objects["rows/whose/a.staged"] = b"12345678"
    found = diagnosed("--staging", "s3://bucket/rows")
    assert found.all_is_well(), found.output
    assert found.has("ok", "staging", "replaced, listed and removed")
    assert found.has("ok", "staging: s3://bucket/rows: 1 files of rows lie there, 0.0 MiB")
    assert store.objects == {"rows/whose/a.staged": b"12345678"}
