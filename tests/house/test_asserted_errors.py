"""A test knows an error by its class, its code and the facts in it, never by its words: these may
be said better at any time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from exactum import errors
from tests.kit.environment import ROOT

KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
NOT_YET = ("sql",)
"""Rooms whose tests still match words."""


def matched(source: str) -> Iterator[int]:
    """Lines of ``pytest.raises(K, match=...)``, where K is an error of exactum."""
    if "match=" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
            kinds = {ast.unparse(kind).rpartition(".")[2] for kind in node.args}
            if kinds & KINDS and any(given.arg == "match" for given in node.keywords):
                yield node.lineno


def test_errors_of_exactum_are_not_matched() -> None:
    tests = ROOT / "tests"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(tests.rglob("*.py"))
        if path.relative_to(tests).parts[0] not in NOT_YET
        for line in matched(path.read_text())
    ]
    assert found == [], "use tests.kit.errors.raised"


@pytest.mark.parametrize("kind", ["SettingRefused", "errors.Unavailable"])
def test_a_match_is_seen(kind: str) -> None:
    assert list(matched(f"with pytest.raises({kind}, match='no'): call()")) == [1]
    assert list(matched(f"with pytest.raises({kind}): call()")) == []
