"""The demo's picture is what its screen showed."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from rich.console import Console

from exactum.ops.crash_test.demo_screen import DemoNumbers, QueryNumbers, Screen


def test_the_picture_shows_the_kills_the_table_and_the_verdict() -> None:
    """In this order, and it fetches nothing."""
    query = QueryNumbers("Spark's own", "a new start", "working", 2093, 93, 0, None, 30, 3, [14.2])
    terminal = io.StringIO()
    screen = Screen(lambda: DemoNumbers("counting", 2000, [query]), Console(file=terminal))
    with screen:
        screen.say("SIGKILL in the middle of a write")
        screen._printed_s = -60.0
        screen.tick()
    screen.say("VERDICT NOT exact", "bold red")
    picture = screen.picture()
    words = ElementTree.fromstring(picture).itertext()
    shown = " ".join(" ".join(words).replace("\xa0", " ").split())
    places = [
        shown.index(text)
        for text in ("SIGKILL", "counting", "a new start", "14 s", "2,093", "93", "VERDICT NOT")
    ]
    assert places == sorted(places)
    assert "produced 2,000 | Spark's own" in terminal.getvalue()
    assert "produced 2,000 |" not in shown  # a pipe's lines say again and again what the table does
    assert not re.search(r"url\(.?http", picture)
