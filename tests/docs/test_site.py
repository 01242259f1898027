"""The site has every page and every public name. ``make docs`` builds it, and looks at its links."""

from __future__ import annotations

import re
from pathlib import Path

import exactum
from tests.kit.docs import command_line
from tests.kit.docs.site import dead_links
from tests.kit.environment import ROOT

DOCS = ROOT / "docs"
REFERENCE = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r'= "([^"]+\.md)"', (ROOT / "zensical.toml").read_text())
    there = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted(named) == sorted(there)


def test_every_public_name_is_in_the_reference() -> None:
    """By a directive of its own, or by that of its module."""
    shown = set(re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE))
    names = {f"exactum.{name}" for name in exactum.__all__ if name != "__version__"}
    assert names <= shown


def test_the_page_of_the_command_line_is_what_the_commands_say() -> None:
    assert command_line.PAGE.read_text() == command_line.page(), (
        "make it again: python -m tests.kit.docs.command_line"
    )


def test_dead_links_are_found(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.sql").touch()
    (site / "b.html").write_text('<h2 id="there">')
    good = ["b.html", "b.html#there", "#own", "", "http://127.0.0.1:4141/"]
    bad = ["c.html", "b.html#gone", "#gone", "../outside.sql", "https://example.org/x.js"]
    links = "".join(f'<a href="{target}">' for target in [*good, *bad])
    (site / "a.html").write_text(f'<h2 id="own">{links}<img src="none.png">')
    assert dead_links(site) == [f"a.html: {target}" for target in [*bad, "none.png"]]


def test_pages_that_messages_and_docstrings_name_are_there() -> None:
    """By path, or a decision record by the begin of its name."""
    named = {
        name
        for source in sorted((ROOT / "src").rglob("*.py"))
        for name in re.findall(r"\bdocs/[\w/-]+(?:\.md)?", source.read_text())
    }
    assert len(named) > 10
    assert [name for name in sorted(named) if not list(ROOT.glob(f"{name}*"))] == []
