"""The command lines of exactum that pages tell people to type, and whether the command takes them.

A line is given to the parser of its command, and goes no further: nothing is run, and no folder or
file that it names has to exist.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from exactum.ops.cli import main
from tests.kit.environment import ROOT

TEMPLATE = ROOT / "src" / "exactum" / "ops" / "project" / "template"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = ("text", "python", "yaml", "json", "sql", "properties")
"""Blocks that nobody types into a shell."""
_SPAN = re.compile(r"``?(exactum [a-z-][^`]*)`")
_IN_A_STRING = re.compile(r"'(exactum [a-z][^'\"{}]*)'")
_OPTION = re.compile(r"`(--[a-z][\w.-]*)")
_PLACE = re.compile(r"[\[\]A-Z:]+")
"""What stands for a value."""
_LINE = re.compile(r"^\t?(exactum [a-z-].*)$", re.MULTILINE)


def outside_blocks(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def shell_blocks(text: str) -> Iterator[str]:
    """What the blocks of a page have that are typed into a shell."""
    yield from (content for kind, content in _BLOCK.findall(text) if kind not in _OUTPUT)


def typed_lines(text: str) -> Iterator[str]:
    """The whole command lines of a page: those of its blocks, without comments, one a line."""
    for content in shell_blocks(text):
        yield from _LINE.findall(content.replace("\\\n", " "))


def named_commands(text: str) -> Iterator[str]:
    """The commands that stand in a sentence. They may leave out what a command needs."""
    yield from _SPAN.findall(outside_blocks(text))


def told_commands(source: str) -> Iterator[str]:
    """The same, in the messages and docstrings of a file of Python."""
    yield from _SPAN.findall(source)
    yield from _IN_A_STRING.findall(source)


def made_lines(makefile: str) -> Iterator[str]:
    """The command lines of a Makefile's recipes, its variables by a number each."""
    yield from _LINE.findall(re.sub(r"\$\(\w+\)", "1", makefile))


def named_options(text: str) -> Iterator[str]:
    """The options that stand in a sentence without their command."""
    yield from _OPTION.findall(outside_blocks(text))


def options(command: click.Command = main) -> Iterator[str]:
    """Those that the command has, and those of the commands below it."""
    yield "--help"
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from options(child)


def pages() -> Iterator[Path]:
    """All that people read before they type. The changelog speaks of what was, too."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    yield TEMPLATE / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def complaint(line: str, *, whole: bool) -> str | None:
    """What the command says against the line; None if it takes it.

    A command that is not ``whole`` may leave out what it needs: its last option has no value, or one
    such as HOST:PORT.
    """
    program, *words = shlex.split(line.replace("...", " "), comments=True)
    assert program == "exactum", line
    shell = [number for number, word in enumerate(words) if word in ("&", "&&", "|", ";")]
    words = words[: shell[0]] if shell else words
    try:
        try:
            _parse(main, words, None, whole=whole)
        except click.BadOptionUsage as error:
            if whole or error.option_name != words[-1]:
                raise
            _parse(main, words[:-1], None, whole=whole)
    except click.UsageError as error:
        return error.format_message()
    return None


def _parse(
    command: click.Command, words: Sequence[str], parent: click.Context | None, *, whole: bool
) -> None:
    """
    Raises:
        click.UsageError: as the command itself would.
    """
    context = click.Context(command, parent, help_option_names=["-h", "--help"])
    given, left, _ = command.make_parser(context).parse_args(list(words))
    for parameter in command.get_params(context):
        value = given.get(parameter.name)
        texts = value if isinstance(value, list | tuple) else [value]
        if not texts or not all(isinstance(text, str | bool | int) for text in texts):
            if parameter.required and whole:
                raise click.MissingParameter(ctx=context, param=parameter)
        elif not (
            isinstance(parameter.type, click.Path) or (not whole and _PLACE.fullmatch(str(value)))
        ):
            parameter.type_cast_value(context, value)
    if not isinstance(command, click.Group):
        if left:
            raise click.UsageError(f"Got unexpected extra arguments ({' '.join(left)})")
    elif left:
        child = command.get_command(context, left[0])
        if child is None:
            raise click.UsageError(f"No such command {left[0]!r}.")
        _parse(child, left[1:], context, whole=whole)
    elif whole and not given:
        raise click.UsageError("Missing command.")
