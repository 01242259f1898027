"""What a page tells people to install, and what its programs and commands need."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import packages_distributions

from tests.kit.docs.typed import typed_lines
from tests.kit.packaging.metadata import extras

_PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
_INSTALL = re.compile(r"pip install ([^`#\n]*)")
_EXACTUM = re.compile(r"\bexactum(?:\[([\w, ]*)\])?(?=[\s'\"=<>,;.`]|$)")
_STORE = re.compile(r"(?:s3|gs|az)://")
WITHOUT_SPARK = ("exactum.errors", "exactum.events", "exactum.testing")
"""Modules of exactum that need no PySpark."""
NAMES = {
    "Avro": "avro",
    "Protobuf": "protobuf",
    "PostgresSink": "postgres",
    "MySQLSink": "mysql",
    "DeltaSink": "delta",
    "IcebergSink": "iceberg",
    "serve_metrics": "metrics",
    "register_metrics": "metrics",
    "transformWithState": "state",
}
"""What a name in a program needs."""
ARGUMENTS = {"registry": "registry"}
COMMANDS = {"dashboard": "dashboard", "run": "spark", "demo": "spark"}


def named_extras(text: str) -> set[str]:
    """Every extra that a text names, of exactum[...]."""
    return {
        extra.strip()
        for found in re.findall(r"\bexactum\[([\w, -]+)\]", text)
        for extra in found.split(",")
    }


def installed(text: str) -> list[set[str]]:
    """The extras of each line that installs exactum, in the order of the page."""
    return [
        _all_of(named_extras(line))
        for line in _INSTALL.findall(text)
        if any(_EXACTUM.finditer(line))
    ]


def _all_of(named: set[str]) -> set[str]:
    return set(extras()) if "all" in named else named


def needed(text: str) -> set[str]:
    """The extras that the programs and the commands of a page need."""
    found = {extra for program in _PROGRAM.findall(text) for extra in _of_program(program)}
    for line in typed_lines(text):
        found |= {COMMANDS[word] for word in line.split()[1:2] if word in COMMANDS}
    return found


def _of_program(program: str) -> Iterator[str]:
    modules = _modules()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        else:
            names = []
        for name in names:
            if name.partition(".")[0] == "exactum" and not name.startswith(WITHOUT_SPARK):
                yield "spark"
            yield from modules.get(name.partition(".")[0], ())
        if isinstance(node, ast.Name) and node.id == "exactum":
            yield "spark"
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield NAMES[node.attr]
        if isinstance(node, ast.keyword) and node.arg in ARGUMENTS:
            yield ARGUMENTS[node.arg]
        if isinstance(node, ast.Constant) and _STORE.match(str(node.value)):
            yield "objects"


def _modules() -> dict[str, set[str]]:
    """The extras that bring a module, by its name. One that comes with every install has none."""
    brought: dict[str, str] = {}
    for extra, requirements in extras().items():
        for requirement in requirements:
            brought.setdefault(_plain(re.split(r"[\[<>=]", requirement)[0]), extra)
    for always in ("exactum", "confluent-kafka"):
        del brought[always]
    return {
        module: {brought[name] for name in map(_plain, of_module) if name in brought}
        for module, of_module in packages_distributions().items()
    }


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
