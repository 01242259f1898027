"""The private parts of kafka-python that exactum uses are in one place. (That they are as they were,
the tests on a broker show.)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.kit.environment import ROOT

PUBLIC = {"kafka", "kafka.admin", "kafka.errors"}
"""What kafka-python documents."""
PERHAPS = re.compile(r"\b(from|import) kafka\b|\._manager\b")
"""Of what has none of these no tree is made."""


def test_they_are_used_in_one_place() -> None:
    """Nothing else of exactum imports from a module that is not public, or reaches for the client's
    manager.
    """
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "src" / "exactum").rglob("*.py"))
        if path != ROOT / "src" / "exactum" / "kafka" / "client.py"
        for name in private_parts(path.read_text())
    ]
    assert found == []


def private_parts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)) if PERHAPS.search(source) else ():
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr == "_manager":
            yield node.attr
        yield from (n for n in names if n.partition(".")[0] == "kafka" and n not in PUBLIC)


@pytest.mark.parametrize(
    "source", ["from kafka.future import Future", "import kafka.protocol.api", "client._manager"]
)
def test_who_reaches_in_is_seen(source: str) -> None:
    assert list(private_parts(source))
