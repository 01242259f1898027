"""A real browser, Debian's Chromium, and what it complains of."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from tests.kit.waiting import WAIT_MAX_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"width": 375, "height": 740}
DESK = {"width": 1180, "height": 900}

FAINT = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = (front, back) => {
    const alpha = front[3] === undefined ? 1 : front[3];
    return [0, 1, 2].map((i) => front[i] * alpha + back[i] * (1 - alpha));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255]);
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, noscript, svg, .skip")) continue;
    const back = ground(element);
    const pair = [light(over(parse(getComputedStyle(element).color), back)), light(back)].sort((a, b) => b - a);
    const ratio = (pair[0] + .05) / (pair[1] + .05);
    if (ratio < 4.5) found.add(`${ratio.toFixed(2)}: ${element.className} ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return [...found];
}
"""
"""Texts whose contrast with what is behind them is below 4.5 to 1 (WCAG 2.2, level AA)."""

SCROLLS_SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


class Tab:
    """One page of a browser. ``complaints`` are errors of its console and of its scripts,
    ``outside`` requests that left this machine.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.loads = 0
        page.on("console", lambda m: self._complain(f"{m.type}: {m.text}", m.type != "log"))
        page.on("pageerror", lambda error: self._complain(str(error), True))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("load", self._loaded)

    @property
    def outside(self) -> list[str]:
        return [url for url in self.requests if urlsplit(url).hostname != "127.0.0.1"]

    def badge(self) -> str:
        """The verdict on the page of one query, or of the first query of all."""
        return str(self.page.inner_text("main .badge[class*='t-']:not(.tally *)")).upper()

    def check_sound(self) -> None:
        """Every text has contrast, nothing but tables scrolls sideways, nothing was complained of, and
        nothing left this machine.
        """
        self.page.wait_for_load_state("load")  # texts are there before the style sheet is
        assert self.page.evaluate(FAINT) == []
        assert not self.page.evaluate(SCROLLS_SIDEWAYS)
        assert (self.complaints, self.outside) == ([], [])

    def until(self, reached: Callable[[], object], what: str) -> None:
        """Wait while the page goes on by itself."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not reached():
            is_over = time.monotonic() > deadline_s
            assert not is_over, f"{what}\n{self.page.inner_text('body')[:3000]}"
            self.page.wait_for_timeout(100)

    def _complain(self, text: str, is_one: bool) -> None:
        if is_one:
            self.complaints.append(text)

    def _loaded(self, page: Page) -> None:
        self.loads += 1


@contextmanager
def chromium() -> Iterator[Browser]:
    """A missing one is an error, never a skip."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise AssertionError("The page's test needs Chromium: make servers installs it.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def tab(browser: Browser, scheme: str = "light", size: dict[str, int] = DESK) -> Tab:
    """A new one, of a browser that knows nothing yet."""
    context = browser.new_context(color_scheme=scheme, viewport=size)  # type: ignore[arg-type]
    return Tab(context.new_page())
