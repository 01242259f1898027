"""Requests to stop that cannot be read, answered or removed: they stop nobody, and hold nobody up."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exactum.checkpoint import request_file
from exactum.checkpoint.layout import REQUESTS
from exactum.errors import Unavailable
from exactum.protocol.model import Incarnation, SourceOffsets
from exactum.spark.query import Batch
from exactum.spark.run.epoch_gate import EpochGate, StopRequest
from exactum.storage.folder import Folder
from tests.kit.waiting import WAIT_MAX_S, await_true

RUN = Incarnation("1" * 16)
FIRST = Batch(0, SourceOffsets(), first=True)


@pytest.mark.parametrize("content", ["", "[1]", '{"id": "x"}'])
def test_half_of_a_request(tmp_path: Path, content: str) -> None:
    """As a power cut leaves it: told of, and passed over. A sound one beside it is found."""
    (tmp_path / REQUESTS).mkdir(parents=True)
    (tmp_path / REQUESTS / "x.json").write_text(content)
    told: list[str] = []
    assert request_file.find(Folder(tmp_path), RUN, told.append) is None
    (sentence,) = told
    assert "x.json is no request to stop that can be read" in sentence
    asked = request_file.ask(Folder(tmp_path), RUN, stands_s=60)
    assert request_file.find(Folder(tmp_path), RUN) == asked


def test_a_folder_of_requests_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / REQUESTS).parent.mkdir()
    (tmp_path / REQUESTS).write_text("no folder")
    told: list[str] = []
    assert request_file.find(Folder(tmp_path), RUN, told.append) is None
    assert len(told) == 1


def test_a_query_that_cannot_answer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked is told so. It is asked again once there is room."""
    stopped = threading.Event()
    run: Any = SimpleNamespace(
        query_id="query",
        incarnation=RUN,
        live=SimpleNamespace(stop=stopped.set),
        still_runs=lambda: not stopped.is_set(),
    )
    gate = EpochGate(run)
    request = StopRequest(run, Folder(tmp_path), gate)
    request_file.ask(Folder(tmp_path), RUN, stands_s=600)

    def full(*_: object, **__: object) -> None:
        raise Unavailable("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Folder, "put", full)
        request.tend()
        request.tend()
        begins = threading.Thread(target=gate.begin, args=(FIRST,), daemon=True)
        begins.start()
        begins.join(WAIT_MAX_S)
        assert not begins.is_alive(), "the micro-batch is held back"
    assert caplog.text.count("cannot be answered") == 1
    gate.done(FIRST, SimpleNamespace(written=True))  # type: ignore[arg-type]
    monkeypatch.setattr(gate, "_is_logged", lambda _: True)
    request.tend()
    request.tend()
    await_true(stopped.is_set, "it is stopped")
    request.close()
