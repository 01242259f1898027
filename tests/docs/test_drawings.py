"""Each picture is on a page, and each drawing can be read: by eye, on light and dark, and aloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page

from exactum.checkpoint import layout
from tests.kit.dashboard.browser import chromium
from tests.kit.docs.drawings import (
    DOCS,
    MADE,
    PICTURES,
    SVG,
    drawings,
    flaws_of_file,
    flaws_of_look,
    style_text,
)
from tests.kit.environment import ROOT

pytestmark = pytest.mark.slow

SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
ALT_WORDS_MIN = 4
BROKEN = """
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 200" width="400" height="200">
<style>.faint {{ fill: #777; }}{style}</style>
<rect class="page" x="1" y="1" width="398" height="198"/>
<rect class="box" x="20" y="20" width="60" height="30"/>
<text x="30" y="40">out of its box</text>
<text x="350" y="100">out of the picture</text>
<text x="20" y="140" style="font-size: 11px">tiny</text>
<text x="120" y="100">one</text><text x="125" y="104">on another</text>
<text x="20" y="170" style="fill: #999">faint</text>
<path class="line" d="M200 150 H300"/><text x="210" y="155">struck out</text>
</svg>
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page()


def test_each_picture_is_on_a_page_and_each_page_has_its_pictures() -> None:
    shown = {
        (page.parent / target).resolve(): alt
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for alt, target in SHOWN.findall(page.read_text())
    }
    there = {path for path in PICTURES.iterdir() if path.suffix != ".css"}
    assert sorted(shown) == sorted(there)
    assert {path.name for path in there} >= set(MADE)
    mute = [path.name for path in drawings() if len(shown[path].split()) < ALT_WORDS_MIN]
    assert mute == [], "their alternative text does not say what is seen"


def test_each_drawing_is_well_formed_and_says_what_it_shows() -> None:
    assert {path.name: flaws for path in drawings() if (flaws := flaws_of_file(path))} == {}


def test_each_drawing_can_be_read_on_a_light_and_on_a_dark_page(page: Page) -> None:
    assert {path.name: flaws for path in drawings() if (flaws := flaws_of_look(page, path))} == {}


def test_the_drawing_of_a_checkpoint_has_every_path_of_it() -> None:
    drawn = {
        text.text or ""
        for text in ElementTree.parse(PICTURES / "checkpoint.svg").iter(f"{SVG}text")
    }
    paths = [path for path in vars(layout).values() if isinstance(path, Path)]
    names = [path.name for path in paths]
    assert len(names) > 9
    assert [name for name in names if not any(text.startswith(name) for text in drawn)] == []


def test_what_is_wrong_with_a_drawing_is_found(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "broken.svg"
    path.write_text(BROKEN.format(style=style_text()).strip())
    assert flaws_of_file(path) == [
        "no <title> of its own",
        "no <desc> of its own",
        'not role="img" aria-labelledby="title desc"',
        "not 700 to 900 px wide",
        "another style: python -m tests.kit.docs.drawings",
    ]
    for flaw in (
        '"out of its box" crosses the edge of a rect',
        '"out of the picture" runs out of the picture',
        '"tiny" is 11 px high',
        '"one" and "on another" overlap',
        '"faint" is faint: 2.8 to 1',
        'a line runs through "struck out"',
    ):
        assert flaw in flaws_of_look(page, path)
