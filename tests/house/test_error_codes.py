"""Every refusal has a code that ``docs/errors.md`` explains, and is short."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from exactum import errors
from tests.kit.environment import ROOT

SOURCES = sorted((ROOT / "src" / "exactum").rglob("*.py"))
PAGE = ROOT / "docs" / "errors.md"
CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
MADE_BY = (ast.Call, ast.ClassDef)
CHARACTERS_MAX = 320
"""Of what is written in the source: three lines, with room for the names that are put in."""


@cache
def nodes() -> list[tuple[str, ast.Call | ast.ClassDef]]:
    """Calls and classes of the sources, each with its place."""
    return [
        (f"{name}:{node.lineno}", node)
        for path in SOURCES
        for name in [path.relative_to(ROOT)]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, MADE_BY)
    ]


def calls() -> list[tuple[str, ast.Call]]:
    return [(place, node) for place, node in nodes() if isinstance(node, ast.Call)]


@cache
def coded() -> set[str]:
    """Names of the errors that have a code."""
    own = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CodedError)
    }
    return own | {
        node.name
        for _, node in nodes()
        if isinstance(node, ast.ClassDef) and own & {getattr(base, "id", "") for base in node.bases}
    }


def kind_of(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


@cache
def made() -> list[tuple[str, ast.Call]]:
    """Where errors with a code are made."""
    return [(place, call) for place, call in calls() if kind_of(call) in coded()]


def code_of(call: ast.Call) -> str | None:
    """Which code a call gives, where it stands there; a parameter ``code`` passes one on."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and CODE.fullmatch(str(first.value)):
        return str(first.value)
    return "" if isinstance(first, ast.Name) and first.id == "code" else None


def passed_on() -> Iterator[str]:
    """Codes that are given to a function of ours, as ``code=``."""
    for _, call in calls():
        for given in call.keywords:
            if given.arg == "code" and isinstance(given.value, ast.Constant):
                yield str(given.value.value)


def test_every_refusal_has_a_code() -> None:
    bare = [place for place, call in made() if code_of(call) is None or len(call.args) != 2]
    assert bare == []


def test_the_page_explains_every_code() -> None:
    """And no other; each once."""
    used = {code for _, call in made() if (code := code_of(call))} | set(passed_on())
    used.add(errors.USER_CODE)
    explained = re.findall(r"^\| `([A-Z0-9_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(explained) == len(set(explained))
    assert set(explained) == used


def test_a_code_is_of_one_class() -> None:
    kinds = defaultdict(set)
    for _, call in made():
        if code := code_of(call):
            kinds[code].add(kind_of(call))
    assert {code: names for code, names in kinds.items() if len(names) > 1} == {}


def test_refusals_are_short() -> None:
    """What, where, what to do: at most three lines."""
    long = {}
    for place, call in made():
        written = sum(
            len(part.value)
            for part in ast.walk(call.args[-1])
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
        if written > CHARACTERS_MAX:
            long[place] = written
    assert long == {}
