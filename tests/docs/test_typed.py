"""Every command line of exactum on a page is one that the command takes."""

from __future__ import annotations

import pytest

from tests.kit.docs.typed import (
    TEMPLATE,
    complaint,
    made_lines,
    named_commands,
    named_options,
    options,
    pages,
    told_commands,
    typed_lines,
)
from tests.kit.environment import ROOT

OF_OTHER_PROGRAMS = ("docs/adr/", "docs/chaos.md", "docs/model.md", "docs/tour.md")
"""Pages that name options of the tools and examples of this repository, or of others."""


def test_whole_lines_are_taken() -> None:
    """Command and options are there, and nothing that is required is left out."""
    lines = {
        f"{page.relative_to(ROOT)}: {line}": complaint(line, whole=True)
        for page in pages()
        for line in typed_lines(page.read_text())
    }
    lines |= {line: complaint(line, whole=True) for line in template_lines()}
    assert len(lines) > 40
    assert {line: said for line, said in lines.items() if said} == {}


def template_lines() -> list[str]:
    lines = list(made_lines((TEMPLATE / "Makefile").read_text()))
    assert len(lines) == 3
    return lines


def test_commands_in_sentences_are_there() -> None:
    """On pages, and in messages and docstrings."""
    texts = [(page, named_commands(page.read_text())) for page in pages()]
    texts += [(file, told_commands(file.read_text())) for file in (ROOT / "src").rglob("*.py")]
    named = {
        f"{file.relative_to(ROOT)}: {line}": complaint(line, whole=False)
        for file, lines in texts
        for line in lines
    }
    assert len(named) > 100
    assert {line: said for line, said in named.items() if said} == {}


def test_options_in_sentences_are_there() -> None:
    known = tuple(options())
    named = {
        f"{page.relative_to(ROOT)}: {option}": option
        for page in pages()
        if not str(page.relative_to(ROOT)).startswith(OF_OTHER_PROGRAMS)
        for option in named_options(page.read_text())
    }
    assert len(named) > 30
    unknown = [
        where
        for where, option in named.items()
        if option not in known and not (option.endswith(".") and option in "\n".join(known))
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("exactum fly", "No such command 'fly'."),
        ("exactum", "Missing command."),
        ("exactum local", "Missing command."),
        ("exactum run", "Missing argument 'SCRIPT'."),
        ("exactum run job.py --wach", "No such option '--wach'."),
        ("exactum run job.py --restart", "Option '--restart' requires an argument."),
        ("exactum run job.py --listen HOST:PORT", "'HOST:PORT' is not"),
        ("exactum verify", "Missing option '--checkpoint'."),
        ("exactum demo --kills many", "'many' is not"),
        ("exactum init a b", "unexpected extra arguments (b)"),
    ],
)
def test_what_a_command_does_not_take_is_seen(line: str, said: str) -> None:
    assert said in (complaint(line, whole=True) or "")


@pytest.mark.parametrize(
    "line",
    [
        "exactum run job.py --watch -- --topic orders --what ever",
        "exactum status   # every checkpoint in this folder",
        "exactum savepoint restore /backup/1 --checkpoint /data/b --as same && echo done",
    ],
)
def test_a_right_line_is_taken(line: str) -> None:
    assert complaint(line, whole=True) is None


@pytest.mark.parametrize(
    "line",
    ["exactum", "exactum verify", "exactum run --restart", "exactum run --listen [HOST:]PORT"],
)
def test_a_name_in_a_sentence_need_not_be_whole(line: str) -> None:
    assert complaint(line, whole=False) is None
