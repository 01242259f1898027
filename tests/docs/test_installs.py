"""What a page tells people to install is enough for what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import exactum
from tests.kit.docs.installs import (
    COMMANDS,
    NAMES,
    installed,
    named_extras,
    needed,
)
from tests.kit.docs.typed import pages
from tests.kit.environment import ROOT
from tests.kit.packaging.metadata import extras

WITH_LINES = [page for page in pages() if installed(page.read_text())]


@pytest.mark.parametrize("page", WITH_LINES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_installs_what_it_needs(page: Path) -> None:
    """All lines together; and the first one brings PySpark where a program or a command needs it."""
    text = page.read_text()
    lines, need = installed(text), needed(text)
    assert need <= set().union(*lines)
    assert "spark" not in need or "spark" in lines[0]


def test_the_guides_of_targets_are_among_them() -> None:
    """A page whose lines are not recognised would be taken for one that has none."""
    names = {page.name for page in WITH_LINES}
    assert names >= {"README.md", "postgres.md", "mysql.md", "files.md", "state.md", "decoding.md"}


def test_what_is_looked_for_exists() -> None:
    assert {*NAMES.values(), *COMMANDS.values()} <= set(extras())
    assert set(NAMES) - set(exactum.__all__) == {"transformWithState"}


def test_what_is_missing_is_seen() -> None:
    program = "```python\nimport psycopg\nfrom exactum.errors import Fenced\n```\n"
    assert needed(program) == {"postgres"}
    for more, extra in (
        ("import exactum", "spark"),
        ("exactum.MySQLSink(url)", "mysql"),
        ("x = 's3://bucket'", "objects"),
        ("x.transformWithState(y)", "state"),
        ("A(registry='http://localhost')", "registry"),
        ("import google.protobuf", "protobuf"),
    ):
        assert extra in needed(f"```python\n{more}\n```")
    assert needed("```sh\nexactum dashboard --checkpoint a\n```\n") == {"dashboard"}


def test_lines_are_read_as_pip_reads_them() -> None:
    assert installed("`pip install 'exactum[state]'`, `pip install \"exactum[spark, mysql]\"`") == [
        {"state"},
        {"spark", "mysql"},
    ]
    assert installed("pip install exactum\npip install pyspark exactum-tools\n") == [set()]
    assert installed("pip install exactum[all]") == [set(extras())]
    assert named_extras("exactum[spark,what]") == {"spark", "what"}
