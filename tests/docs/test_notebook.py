"""The notebook is run from top to bottom, without Jupyter, and prints what its file shows."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from exactum.local import LocalKafka
from tests.kit.environment import ROOT

NOTEBOOK = ROOT / "examples" / "notebooks" / "exactly-once.ipynb"
OWN_BROKER = "kafka = LocalKafka()\n"
"""The line of the first code cell in whose place the tests' broker is given."""
OUTPUT_MAX = 2_000
"""Characters that a cell may show."""


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.usefixtures("spark", "settings_put_back")
def test_it_prints_what_it_shows(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = code_cells()
    sources = ["".join(cell["source"]) for cell in cells]
    assert OWN_BROKER in sources[0], "its first code cell starts a broker"
    exec("from exactum.local import LocalKafka", names := {"__name__": "__main__", "kafka": kafka})
    shown = ["".join(_texts(cell)).strip() for cell in cells]
    printed = []
    for number, source in enumerate(sources, start=1):
        code = compile(source.replace(OWN_BROKER, ""), f"code cell {number}", "exec")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(code, names)
        printed.append(said.getvalue().strip())
    assert printed == shown
    assert any(printed), "it shows something"


def _texts(cell: dict[str, Any]) -> list[str]:
    return [line for output in cell["outputs"] for line in output["text"]]


def test_its_file_is_a_notebook_that_was_run() -> None:
    """Of nbformat 4.5, run once from top to bottom, with texts for outputs and no errors."""
    content = json.loads(NOTEBOOK.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    cells = content["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        common = {"cell_type", "id", "metadata", "source"}
        more = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell["cell_type"] in ("code", "markdown")
        assert set(cell) == common | more
    code = code_cells()
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell["outputs"]):
        assert (output["output_type"], output["name"]) == ("stream", "stdout")
        assert len("".join(output["text"])) < OUTPUT_MAX
