"""Queries by how they are: what they told, whether they live, and their verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.kit.monitor.facts import Story
from tests.kit.monitor.made_checkpoint import ago


def at_work(seconds: int, lag: int, folder: Path, **started: object) -> Story:
    """A batch each second until now, and each five seconds a look at what is left to read."""
    story = ago(seconds).starts(checkpoint=str(folder), **started)
    for batch_id in range(seconds):
        story.epoch(batch_id)
        if batch_id % 5 == 0:
            story.lag(lag, float(lag))
    return story


Case = Callable[[Path], tuple[Story, int]]
"""Facts of a query in this folder, and its last batch."""


def fine(folder: Path) -> tuple[Story, int]:
    return at_work(10, 0, folder).lag(0), 9


def slow(folder: Path) -> tuple[Story, int]:
    return at_work(120, 500, folder).lag(500, 500.0), 119


def stalled(folder: Path) -> tuple[Story, int]:
    story = ago(105).starts(checkpoint=str(folder))
    for batch_id in range(5):
        story.epoch(batch_id)
    for _ in range(20):
        story.after(5).lag(90, 60.0)
    return story, 4


def held(folder: Path) -> tuple[Story, int]:
    story = at_work(10, 3, folder)
    return story.held(story.now_ms - 5_000), 9


def ended(folder: Path) -> tuple[Story, int]:
    return at_work(10, 0, folder, ends=True).ends(has_read_all=True), 9


def stopped(folder: Path) -> tuple[Story, int]:
    return at_work(10, 0, folder).ends(), 9


def cut_off(folder: Path) -> tuple[Story, int]:
    return at_work(10, 0, folder).ends(reason="it was cut off by the end of its script"), 9


def refused(folder: Path) -> tuple[Story, int]:
    return at_work(10, 0, folder).ends("RowsRefused", "halt", "a row is refused"), 9


CASES = {
    "works": (fine, True, "OK"),
    "falls behind": (slow, True, "SLOW"),
    "begins nothing": (stalled, True, "STALLED"),
    "is held back": (held, True, "HELD UPSTREAM"),
    "was killed right now": (fine, False, "DOWN"),
    "has read all and ended": (ended, False, "OK"),
    "has said that it ends, and is locked still": (ended, True, "OK"),
    "was stopped": (stopped, False, "DOWN"),
    "was cut off by the end of its script": (cut_off, False, "DOWN"),
    "was refused": (refused, False, "DOWN"),
    "was killed after its decision": (fine, False, "IN DOUBT"),
}
