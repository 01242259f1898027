"""What pages tell people to type into a shell, but for exactum's own commands (``typed.py``), and
what is wrong with it. Nothing is run but the parsers of this repository's own programs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from tests.kit.docs.installs import named_extras
from tests.kit.docs.typed import TEMPLATE, outside_blocks, shell_blocks
from tests.kit.environment import ROOT
from tests.kit.packaging.metadata import extras

_SPAN = re.compile(r"`([^`\n]+)`")
_SAVED = re.compile(r"[Ss]ave this as\s`([^`]+)`")
_ASSIGNED = re.compile(r"[A-Z_]+=.*")
IN_A_SENTENCE = ("app.py", "orders.py", "...")
"""Programs of the reader's own that a sentence may name."""
Complaint = str | None


def lines(page: Path) -> Iterator[str]:
    """What the page tells people to type: the lines of its blocks, and what stands in a sentence
    and begins with a program that is known here.
    """
    text = page.read_text()
    for content in shell_blocks(text):
        for line in content.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("exactum "):
                yield line
    for span in _SPAN.findall(outside_blocks(text)):
        if len(span.split()) > 1 and span.split()[0] in PROGRAMS:
            yield span


def complaint(line: str, page: Path) -> Complaint:
    """What is wrong with a line of the page; None if nothing is known to be."""
    if re.search(r"<[\w -]+>", line):
        return "< and > redirect: who types the line as it stands gets an error of the shell"
    checked = subprocess.run(
        ["bash", "-n", "-c", line], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        return checked.stderr.strip()
    words = shlex.split(line, comments=True)
    while words and _ASSIGNED.fullmatch(words[0]):
        words.pop(0)
    program, *arguments = words
    if program not in PROGRAMS:
        return f"nobody has looked at what {program} takes: see PROGRAMS"
    return PROGRAMS[program](arguments, page)


def _nothing(arguments: Sequence[str], page: Path) -> Complaint:
    """A program that every machine has, or whose line was tried once by hand."""
    return None


def _make(arguments: Sequence[str], page: Path) -> Complaint:
    """Targets are those of the repository, and of a project of ``exactum init``."""
    files = [ROOT / "Makefile", TEMPLATE / "Makefile"]
    text = "\n".join(file.read_text() for file in files)
    for word in arguments:
        name, variable, _ = word.partition("=")
        known = (
            rf"^(?:export )?{name} \?=|\$\(or \$\({name}\)"
            if variable
            else rf"^[a-z -]*\b{name}\b[a-z -]*:"
        )
        if word != "..." and not re.search(known, text, re.MULTILINE):
            return f"make knows no {name}"
    return None


def _pip(arguments: Sequence[str], page: Path) -> Complaint:
    if arguments[0] not in ("install", "download"):
        return f"pip has no {arguments[0]}"
    unknown = named_extras(" ".join(arguments)) - set(extras())
    return f"exactum has no extra {unknown}" if unknown else None


def _python(arguments: Sequence[str], page: Path) -> Complaint:
    program, *rest = arguments
    if program == "-m":
        module, *rest = rest
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            return f"no module {module}"
        path = Path(found.origin)
        path = path.with_name("__main__.py") if path.name == "__init__.py" else path
        return _refused(path, rest) if path.is_relative_to(ROOT) else None
    if (ROOT / program).is_file():
        return _refused(ROOT / program, rest)
    if program in IN_A_SENTENCE or (TEMPLATE / program).is_file():
        return None
    return None if program in _SAVED.findall(page.read_text()) else f"no program {program}"


class _Taken(Exception):
    """The parser has taken all arguments."""


def _refused(path: Path, arguments: Sequence[str]) -> Complaint:
    """What the program's own parser says against the arguments; it goes no further."""
    if ".parse_args(" not in path.read_text():
        return None
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise _Taken

    said = io.StringIO()
    with (
        patch.object(argparse.ArgumentParser, "parse_args", parsed),
        patch.object(sys, "argv", [str(path), *arguments]),
        contextlib.redirect_stderr(said),
    ):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except _Taken:
            return None
        except SystemExit:
            return said.getvalue()
    return f"{path} has not looked at its arguments"


def _pytest(arguments: Sequence[str], page: Path) -> Complaint:
    saved = _SAVED.findall(page.read_text())
    unknown = [word for word in arguments if word.endswith(".py") and word not in saved]
    return f"no file {unknown}" if unknown else None


def _consumer_groups(arguments: Sequence[str], page: Path) -> Complaint:
    """Kafka's tool has no default for the brokers."""
    if "--bootstrap-server" not in arguments:
        return "Missing required argument [bootstrap-server]"
    return None


PROGRAMS: dict[str, Callable[[Sequence[str], Path], Complaint]] = {
    "make": _make,
    "pip": _pip,
    "pytest": _pytest,
    "python": _python,
    "python3": _python,
    "kafka-consumer-groups": _consumer_groups,
    "kafka-consumer-groups.sh": _consumer_groups,
} | dict.fromkeys(
    (
        ".",
        "cat",
        "cd",
        "cp",
        "curl",
        "echo",
        "export",
        "flink",
        "git",
        "jupyter",
        "kill",
        "psql",
        "spark-submit",
        "ssh",
        "timeout",
        "uv",
        "venv-pack",
    ),
    _nothing,
)
"""What looks at the arguments of a program."""
