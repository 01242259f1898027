"""The command lines of exactum that pages tell people to type, and whether the command takes them.

A line is given to the parser of its command, and goes no further: nothing is run, and no folder or
file that it names has to exist.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import click

from exactum.ops.cli import main
from tests.kit.docs.code import fences
from tests.kit.environment import ROOT

TEMPLATE = ROOT / "src" / "exactum" / "ops" / "project" / "template"
OUTPUT = ("text", "python", "yaml", "json", "sql", "properties", "markdown")
"""Blocks that nobody types into a shell."""
NAMED = re.compile(r"``?(exactum [a-z-][^`]*)`")
PLACE = re.compile(r"[\[\]A-Z:]+")
"""What stands for a value."""


def pages() -> Iterator[Path]:
    """All that people read before they type."""
    names = "README.md", "CONTRIBUTING.md", "examples/README.md", "model/README.md"
    yield from (ROOT / name for name in (*names, "chaos/README.md"))
    yield TEMPLATE / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def typed_lines(page: Path) -> Iterator[str]:
    """All lines of a page that are typed into a shell."""
    for kind, text in fences(page):
        if kind not in OUTPUT:
            yield from filter(str.strip, text.replace("\\\n", " ").splitlines())


def complaint(line: str) -> str | None:
    """What the command says against a whole line; None if it takes it."""
    words = shlex.split(line, comments=True)[1:]
    shell = [number for number, word in enumerate(words) if word in ("&", "&&", "|", ";")]
    try:
        with patch.object(click.Path, "convert", lambda _, value, *__: value):
            _parse(main, words[: shell[0]] if shell else words, None)
    except click.UsageError as error:
        return error.format_message()
    return None


def _parse(command: click.Command, words: Sequence[str], parent: click.Context | None) -> None:
    context = click.Context(command, parent, help_option_names=["-h", "--help"])
    if not isinstance(command, click.Group):
        command.parse_args(context, list(words))
        return
    _, left, _ = command.make_parser(context).parse_args(list(words))
    if not left:
        raise click.UsageError("Missing command.")
    _, child, rest = command.resolve_command(context, left)
    assert child is not None
    _parse(child, rest, context)


def unknown(line: str) -> str | None:
    """What of a command that a sentence names is not there: a command, or an option."""
    command: click.Command = main
    for word in shlex.split(line.replace("...", " "))[1:]:
        if word == "--":
            break
        if word.startswith("-"):
            options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            if word.partition("=")[0] not in {*options, "--help", "--version"}:
                return f"{command.name} has no {word}"
        elif isinstance(command, click.Group) and not PLACE.fullmatch(word):
            child = command.commands.get(word)
            if child is None:
                return f"{command.name} has no {word}"
            command = child
    return None
