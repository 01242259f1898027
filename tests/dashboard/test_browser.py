"""The page in a real browser, of queries that are made up. A real one that is held back, frozen and
killed: ``tests/monitor/test_watched_query.py``.

With EXACTUM_PICTURES=1 it also makes the pictures of docs/dashboard.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from exactum.monitor.http_server import HttpServer
from exactum.monitor.job_sources import CheckpointJobs
from exactum.ops.dashboard.routes import dashboard_routes
from tests.kit.dashboard.browser import DESK, FAINT, PHONE, Tab, chromium, tab
from tests.kit.dashboard.checkpoints import four_queries
from tests.kit.environment import ROOT

pytestmark = pytest.mark.slow

PICTURES = ROOT / "docs" / "pictures"
PICTURE_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def picture(seen: Tab, name: str, height_max: int = 900) -> None:
    """Made where it is asked for, so that a run of the tests leaves the repository as it is."""
    if os.environ.get("EXACTUM_PICTURES"):
        path = PICTURES / f"page-{name}.png"
        seen.until(lambda: "live" in seen.page.inner_text("#fresh-text"), "it is alive")
        size = seen.page.viewport_size or DESK
        height = min(height_max, int(seen.page.evaluate("document.body.offsetHeight")))
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height}
        seen.page.screenshot(path=path, clip=clip, full_page=True)  # type: ignore[arg-type]
        assert path.stat().st_size < PICTURE_BYTES_MAX, path


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[HttpServer]:
    """The page of four queries that are made up."""
    with four_queries(tmp_path) as made:
        server = HttpServer(dashboard_routes(CheckpointJobs([one.folder for one in made])))
        yield server
        server.close()


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        # The other tests have the desk's light pages.
        pytest.param("desk", "light", marks=pytest.mark.deep),
        ("phone", "dark"),
        pytest.param("desk", "dark", marks=pytest.mark.deep),
        pytest.param("phone", "light", marks=pytest.mark.deep),
    ],
)
def test_every_page_light_and_dark_wide_and_narrow(
    busy: HttpServer, browser: Browser, scheme: str, size: str
) -> None:
    """Each text can be read, and nothing is wider than the screen."""
    seen = tab(browser, scheme, PHONE) if size == "phone" else tab(browser, scheme)
    seen.page.goto(busy.url)
    badges = ["DOWN", "IN DOUBT", "HELD UPSTREAM", "OK"]
    assert seen.page.locator(".card-head .badge").all_inner_texts() == badges
    seen.check_sound()
    if (scheme, size) == ("light", "desk"):
        picture(seen, "overview", height_max=1_100)
    seen.page.click("text=orders")
    seen.until(lambda: seen.page.locator("canvas").count() == 4, "four plots are drawn")
    seen.check_sound()
    if (scheme, size) == ("light", "desk"):
        picture(seen, "query-light")
    seen.page.evaluate("document.querySelector('.reason').style.color = '#777'")
    assert len(seen.page.evaluate(FAINT)) >= 1, "what is faint is seen"
    seen.page.goto(f"{busy.url}/job/nothing")
    seen.complaints = [text for text in seen.complaints if "404" not in text]
    seen.check_sound()
    seen.page.context.close()


@pytest.mark.deep
def test_keyboard_pause_and_a_tab_that_nobody_sees(busy: HttpServer, browser: Browser) -> None:
    """The first key leads to the content; a button holds the page still; a hidden tab asks nothing;
    what was opened stays open.
    """
    seen = tab(browser)
    seen.page.goto(busy.url)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("document.activeElement.id") == "main"
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.textContent") == "payments"
    seen.page.keyboard.press("Enter")
    seen.until(lambda: seen.page.locator("canvas").count() == 4, "the query's page")

    def asks(times: int) -> None:
        wanted = len(seen.requests) + times
        seen.until(lambda: len(seen.requests) >= wanted, f"it asks {times} times")

    def asks_nothing() -> None:
        before = len(seen.requests)
        seen.page.wait_for_timeout(2_600)
        assert len(seen.requests) == before

    asks(2)
    seen.page.focus("#pause")
    seen.page.keyboard.press("Enter")
    seen.until(lambda: "paused" in seen.page.inner_text("#fresh-text"), "it is paused")
    asks_nothing()
    seen.page.keyboard.press("Enter")
    seen.until(lambda: "live" in seen.page.inner_text("#fresh-text"), "it goes on")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    seen.page.evaluate(hide % "true")
    asks_nothing()
    seen.page.evaluate(hide % "false")
    asks(1)
    seen.check_sound()
    seen.page.context.close()
