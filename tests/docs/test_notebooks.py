"""The notebooks: each is run from top to bottom, and prints what its file shows."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.kit.docs.notebook import Notebook, steady
from tests.kit.environment import ROOT

NOTEBOOKS = [Notebook(path) for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))]
OUTPUT_MAX = 2_000
"""Characters that a cell may show."""

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda book: book.path.stem)


@pytest.fixture
def signals_put_back() -> Iterator[None]:
    """``exactum doctor`` answers SIGTERM as Ctrl-C, in the process that it is called in."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.usefixtures("spark", "settings_put_back", "signals_put_back")
@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(
            book, id=book.path.stem, marks=pytest.mark.deep if book.path.stem != "operating" else ()
        )
        for book in NOTEBOOKS
    ],
)
def test_a_notebook_prints_what_it_shows(
    notebook: Notebook, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    printed = notebook.run(kafka)
    assert list(map(steady, printed)) == [steady(cell.said) for cell in notebook.cells]
    assert "".join(printed), "it shows something"


@each_notebook
def test_its_file_is_a_notebook_that_was_run(notebook: Notebook) -> None:
    """Of nbformat 4.5, run once from top to bottom, with texts for outputs and no errors."""
    content = notebook.content
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    cells = content["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        common = {"cell_type", "id", "metadata", "source"}
        more = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell["cell_type"] in ("code", "markdown")
        assert set(cell) == common | more
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell["outputs"]):
        assert (output["output_type"], output["name"]) == ("stream", "stdout")
        assert len("".join(output["text"])) < OUTPUT_MAX


def test_there_are_three() -> None:
    assert [notebook.path.stem for notebook in NOTEBOOKS] == ["exactly-once", "operating", "state"]
