"""What stands in the blocks of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from tests.kit.environment import ROOT

SNIPPET = re.compile(r'^--8<-- "([^"]+)"$', re.M)


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """The language of each block, and its text."""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence":
            yield token.info.partition(" ")[0], token.content


def blocks(page: Path) -> list[str]:
    """The page's blocks of Python, with the files that it shows in them."""
    return [
        SNIPPET.sub(lambda shown: (ROOT / shown[1]).read_text(), text)
        for kind, text in fences(page)
        if kind == "python"
    ]


def block(page: Path, text: str) -> str:
    """The page's one block of Python in which this stands, wherever on the page it is."""
    found = [program for program in blocks(page) if text in program]
    assert len(found) == 1, f"{page.name} has {len(found)} blocks with {text!r}"
    return found[0]
