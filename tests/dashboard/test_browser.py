"""The page in a real browser: a real query behind it, which is held back upstream, frozen and killed.

With EXACTUM_PICTURES=1 it also makes the pictures of docs/dashboard.md.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from exactum.local import LocalKafka
from exactum.monitor.http_server import HttpServer
from exactum.monitor.job_sources import CheckpointJobs
from exactum.ops.dashboard.routes import dashboard_routes
from tests.conftest import TopicFactory
from tests.kit.dashboard.browser import DESK, FAINT, PHONE, SCROLLS_SIDEWAYS, Tab, chromium, tab
from tests.kit.dashboard.checkpoints import four_queries
from tests.kit.environment import ROOT
from tests.kit.monitor.fed_query import Fed, base_url

pytestmark = pytest.mark.slow

PICTURES = ROOT / "docs" / "pictures"
PICTURE_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def fed(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> Fed:
    numbers, out = topic("numbers", partitions=2), topic("out", partitions=2)
    return Fed(kafka, tmp_path, numbers, out, topic("dead", partitions=1))


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


def check_sound(seen: Tab) -> None:
    """Every text has contrast, nothing but tables scrolls sideways, nothing was complained of, and
    nothing left this machine.
    """
    seen.page.wait_for_load_state("load")  # texts are there before the style sheet is
    assert seen.page.evaluate(FAINT) == []
    assert not seen.page.evaluate(SCROLLS_SIDEWAYS)
    assert seen.complaints == []
    assert seen.outside == []


@pytest.mark.deep
@pytest.mark.parametrize("frozen", [False, True])
def test_a_query_that_is_held_back_and_killed(fed: Fed, browser: Browser, frozen: bool) -> None:
    """The page of exactum run follows it without being loaded again, and outlives the driver.

    ``frozen``: it is killed after it has hung for half a minute with a decision that is not
    carried out.
    """
    options = ["--restart-attempts", "5", "--restart-delay", "6 s"]
    with fed.run(options, trigger="1 second", timeout_ms=120_000) as run, fed.growing():
        base = base_url(run)
        seen = tab(browser)
        seen.page.goto(base)
        seen.until(lambda: "No query has begun" in seen.page.inner_text("main"), "it says so")
        seen.until(lambda: "OK" in seen.page.inner_text("main"), "the query works")
        fed.send("no number")
        seen.page.click("text=watched")
        seen.until(lambda: seen.page.locator("canvas").count() == 4, "four plots are drawn")
        first = seen.page.inner_text("#h-batches ~ .scroll tbody tr:first-child td:first-child")
        seen.until(
            lambda: f"{int(first) + 3}" in seen.page.inner_text("#h-batches ~ .scroll"), "it moves"
        )
        seen.until(
            lambda: "put into the dead letters" in seen.page.inner_text("main"), "dead letters"
        )
        loads = seen.loads

        with fed.behind_open_transactions():
            seen.until(lambda: seen.badge() == "HELD UPSTREAM", "held upstream")
            said = seen.page.inner_text("main")
            assert f"transactional id foreign-{fed.source}" in said
        seen.until(lambda: seen.badge() == "OK", "it goes on")

        driver = run.pids()[-1]
        if frozen:
            fed.freeze()
            seen.until(lambda: seen.badge() == "IN DOUBT", "decided and frozen")
        run.signal_session(driver, signal.SIGKILL)
        dead = "IN DOUBT" if frozen else "DOWN"
        seen.until(lambda: seen.badge() == dead, "the death")
        seen.until(lambda: "SIGKILL" in seen.page.inner_text("#h-failures ~ .timeline"), "its end")
        assert seen.page.title().startswith(f"{dead} · watched")
        seen.until(lambda: seen.badge() == "OK", "it was started again")
        timeline = seen.page.locator("#h-runs ~ .timeline")
        begins = "A run begins at micro-batch"
        seen.until(lambda: timeline.inner_text().count(begins) == 2, "the second run")
        assert f"Process {driver} ended" in timeline.inner_text()
        assert not frozen or "sent the decided commit of micro-batch" in timeline.inner_text()
        assert re.search(r"Restarts, takeovers\s+1, 0", seen.page.inner_text("main"))
        assert seen.loads == loads, "the page was never loaded again"
        check_sound(seen)

        seen.page.click("#h-batches ~ .scroll tbody tr:nth-child(3) a")
        seen.until(lambda: seen.badge() == "STANDS", "a batch that stands")
        assert "COMMIT" in seen.page.inner_text("main")
        assert fed.source in seen.page.inner_text("#h-offsets ~ .scroll")
        check_sound(seen)

        seen.page.goto(base)
        run.signal(signal.SIGTERM)
        assert run.ends() == 0

    seen.until(lambda: "no answer" in seen.page.inner_text("#fresh-text"), "nobody answers")
    assert "watched" in seen.page.inner_text("main"), "what was seen last stays"


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
    check_sound(seen)
    if (scheme, size) == ("light", "desk"):
        picture(seen, "overview", height_max=1_100)
    seen.page.click("text=orders")
    seen.until(lambda: seen.page.locator("canvas").count() == 4, "four plots are drawn")
    check_sound(seen)
    if (scheme, size) == ("light", "desk"):
        picture(seen, "query-light")
    seen.page.click("#h-batches ~ .scroll tbody tr:first-child a")
    seen.until(lambda: seen.badge() == "STANDS", "a batch")
    check_sound(seen)
    if (scheme, size) == ("light", "desk"):
        picture(seen, "batch")
    seen.page.evaluate("document.querySelector('.reason').style.color = '#777'")
    assert len(seen.page.evaluate(FAINT)) >= 1, "what is faint is seen"
    seen.page.goto(f"{busy.url}/job/nothing")
    seen.complaints = [text for text in seen.complaints if "404" not in text]
    check_sound(seen)
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

    def asked(during_ms: int) -> int:
        before = len(seen.requests)
        seen.page.wait_for_timeout(during_ms)
        return len(seen.requests) - before

    assert asked(2_600) >= 2
    seen.page.focus("#pause")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_timeout(500)
    assert asked(2_600) == 0
    assert "paused" in seen.page.inner_text("#fresh-text")
    seen.page.keyboard.press("Enter")
    seen.until(lambda: "live" in seen.page.inner_text("#fresh-text"), "it goes on")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    seen.page.evaluate(hide % "true")
    seen.page.wait_for_timeout(500)
    assert asked(2_600) == 0
    seen.page.evaluate(hide % "false")
    assert asked(2_600) > 0
    check_sound(seen)
    seen.page.context.close()
