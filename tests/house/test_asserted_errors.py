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


def matched(source: str) -> Iterator[int]:
    """Lines of ``pytest.raises(K, match=...)``, where K is an error of exactum, or has one."""
    if "match=" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
            named = (part for kind in node.args for part in ast.walk(kind))
            kinds = {ast.unparse(part).rpartition(".")[2] for part in named}
            if kinds & KINDS and any(given.arg == "match" for given in node.keywords):
                yield node.lineno


def test_errors_of_exactum_are_not_matched() -> None:
    tests = ROOT / "tests"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(tests.rglob("*.py"))
        for line in matched(path.read_text())
    ]
    assert found == [], "use tests.kit.errors.raised"


@pytest.mark.parametrize(
    "kind", ["SettingRefused", "errors.Unavailable", "(OSError, OutcomeUnknown)"]
)
def test_a_match_is_seen(kind: str) -> None:
    assert list(matched(f"with pytest.raises({kind}, match='no'): call()")) == [1]
    assert list(matched(f"with pytest.raises({kind}): call()")) == []
