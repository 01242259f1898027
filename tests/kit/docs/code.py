"""The Python on the pages, looked at without running it: does it compile, and does exactum have
what it uses?
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.environment import ROOT

BLOCK = re.compile(r"^( *)```python[^\n]*\n(.*?)^\1```", re.S | re.M)
SNIPPET = re.compile(r'^--8<-- "([^"]+)"$', re.M)


def blocks(page: Path) -> list[str]:
    """The page's blocks of Python, with the files that it shows in them."""
    return [
        SNIPPET.sub(lambda shown: (ROOT / shown[1]).read_text(), textwrap.dedent(code))
        for _, code in BLOCK.findall(page.read_text())
    ]


def faults(page_blocks: list[str]) -> list[str]:
    """What is wrong with the blocks of one page; a later one may use the names of those before."""
    known = Known()
    found: list[str] = []
    for number, code in enumerate(page_blocks):
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            found.append(f"block {number}: {error}")
            continue
        found += [f"block {number}, line {line}: {what}" for line, what in known.faults(tree)]
    return found


@dataclass
class Known:
    """What the names of a page stand for, as far as they are exactum's. ``exactum`` itself needs no
    import: a page imports it in its first program.
    """

    names: dict[str, Any] = field(
        default_factory=lambda: {"exactum": importlib.import_module("exactum")}
    )
    kinds: dict[str, type] = field(default_factory=dict)
    """The classes of what names are made by a call."""

    def faults(self, tree: ast.AST) -> Iterator[tuple[int, str]]:
        """Line and fault, in the order of the page."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from ((node.lineno, what) for what in self._imported(node))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                self._assigned(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                yield from ((node.lineno, what) for what in self._attribute(node))
            elif isinstance(node, ast.Call):
                yield from ((node.lineno, what) for what in self._call(node))

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            for one in node.names:
                if _ours(one.name) and _module(one.name) is None:
                    yield f"there is no module {one.name}"
        elif _ours(node.module or "") and not node.level:
            for one in node.names:
                found = _member(_module(node.module or ""), one.name)
                if found is None:
                    yield f"{node.module} has no {one.name}"
                else:
                    self.names[one.asname or one.name] = found

    def _assigned(self, node: ast.Assign) -> None:
        """``server = exactum.serve_metrics()`` says what ``server`` is."""
        if isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            kind = _made_by(self._resolved(node.value.func))
            if kind is not None:
                self.kinds[node.targets[0].id] = kind

    def _resolved(self, node: ast.expr) -> Any:
        """What an expression stands for; None where that is not exactum's, or not there."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in self.kinds:
                return getattr(self.kinds[node.value.id], node.attr, None)
            return _member(self._resolved(node.value), node.attr)
        return None

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        if self._resolved(node) is not None:
            return
        if self._resolved(node.value) is not None:
            yield f"there is no {ast.unparse(node)}"
        elif isinstance(node.value, ast.Name) and node.value.id in self.kinds:
            kind = self.kinds[node.value.id]
            if not hasattr(kind, node.attr) and node.attr not in _fields(kind):
                yield f"{kind.__name__} has no {node.attr}"

    def _call(self, node: ast.Call) -> Iterator[str]:
        called = self._resolved(node.func)
        if not callable(called):
            return
        try:
            signature = inspect.signature(called)
        except ValueError:  # an exception that takes what every exception takes
            return
        named = {each.arg for each in node.keywords if each.arg}
        open_ended = any(isinstance(each, ast.Starred) for each in node.args) or (
            len(named) < len(node.keywords)
        )
        receiver = [None] * _takes_itself(node.func, self.kinds)
        given: tuple[list[None], Mapping[str, None]] = (
            receiver + [None for each in node.args if not isinstance(each, ast.Starred)],
            dict.fromkeys(named),
        )
        bind = signature.bind_partial if open_ended else signature.bind
        try:
            bind(*given[0], **given[1])
        except TypeError as error:
            yield f"{ast.unparse(node.func)}: {error}"
        for name in sorted(named - set(signature.parameters)):
            # Into **options: those are Spark's, inCamelCase, or local_session's spark_...
            if name.islower() and not name.startswith("spark_"):
                yield f"{ast.unparse(node.func)} has no argument {name}"


def _takes_itself(func: ast.expr, kinds: Mapping[str, type]) -> bool:
    """Whether a method is called on an instance, which is its first argument."""
    if not (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id in kinds
    ):
        return False
    raw = inspect.getattr_static(kinds[func.value.id], func.attr)
    return not isinstance(raw, staticmethod | classmethod)


def _ours(module: str) -> bool:
    return module.partition(".")[0] == "exactum"


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _member(of: Any, name: str) -> Any:
    if of is None:
        return None
    found = getattr(of, name, None)
    if found is None and inspect.ismodule(of):
        return _module(f"{of.__name__}.{name}")
    return found


def _made_by(called: Any) -> type | None:
    """The class of what a call returns, where that is exactum's and can be told."""
    if inspect.isclass(called):
        return called
    if not inspect.isfunction(called):
        return None
    try:
        kind = typing.get_type_hints(called).get("return")
    except NameError:  # a type that is imported for the type checker alone
        return None
    return kind if inspect.isclass(kind) and _ours(kind.__module__) else None


def _fields(kind: type) -> set[str]:
    """Those that a class declares, and those that its methods set."""
    ours = [each for each in kind.__mro__ if _ours(each.__module__)]
    declared = {name for each in ours for name in vars(each).get("__annotations__", {})}
    return declared.union(*(re.findall(r"\bself\.(\w+)", inspect.getsource(each)) for each in ours))
