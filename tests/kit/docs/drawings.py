"""The drawings of the docs: SVG by hand in ``docs/pictures``, all in the style of ``drawing.css``.

``python -m tests.kit.docs.drawings`` puts the style into each of them. With a folder, it also makes
a picture of each there, as a reader of a light and of a dark page sees it: look at them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

from playwright.sync_api import Browser, Page

from tests.kit.dashboard.browser import chromium
from tests.kit.environment import ROOT

DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
STYLE = PICTURES / "drawing.css"
SVG = "{http://www.w3.org/2000/svg}"
MADE = ("demo.svg",)
"""Those that programs have made."""
SCHEMES = ("light", "dark")
TEXT_PX_MIN = 12
CONTRAST_MIN = 4.5
"""WCAG 2.2, level AA."""
WIDTHS_PX = (700, 900)

MEASURE = """
([pixels, contrast]) => {
  const found = [];
  const root = document.documentElement;
  const view = root.viewBox.baseVal;
  const all = (kind) => [...root.querySelectorAll(kind)].filter((each) => !each.closest("defs"));
  const shown = (text) => `"${text.textContent.trim()}"`;
  const boxOf = (each) => {
    const { x, y, width, height } = each.getBBox();
    const at = (px, py) => new DOMPoint(px, py).matrixTransform(root.getScreenCTM().inverse().multiply(each.getScreenCTM()));
    const corners = [at(x, y), at(x + width, y), at(x, y + height), at(x + width, y + height)];
    const [xs, ys] = [corners.map((c) => c.x), corners.map((c) => c.y)];
    return { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys), at };
  };
  const meet = (a, b, slack) => a.left < b.right - slack && b.left < a.right - slack && a.top < b.bottom - slack && b.top < a.bottom - slack;
  const within = (a, b, margin) => a.left >= b.left + margin && a.right <= b.right - margin && a.top >= b.top && a.bottom <= b.bottom;
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const texts = all("text").map((each) => ({ each, box: boxOf(each) }));
  const shapes = all("rect, circle, ellipse, polygon").map((each) => ({ each, box: boxOf(each) }));
  const lines = all("line, path, polyline").map((each) => ({ each, box: boxOf(each) }));
  if (texts.length < 3) found.push("has hardly any text: are there paths instead?");
  for (const { each, box } of texts) {
    const scale = each.getScreenCTM().a / root.getScreenCTM().a;
    const size = parseFloat(getComputedStyle(each).fontSize) * scale;
    if (size < pixels) found.push(`${shown(each)} is ${size} px high`);
    if (!within(box, { left: view.x, right: view.x + view.width, top: view.y, bottom: view.y + view.height }, 4)) found.push(`${shown(each)} runs out of the picture`);
    const behind = shapes.filter((shape) => shape.each.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
    const ground = behind.filter((shape) => within(box, shape.box, 0) && getComputedStyle(shape.each).fill !== "none").pop();
    const pair = [light(getComputedStyle(each).fill), ground ? light(getComputedStyle(ground.each).fill) : 0.5].sort((a, b) => b - a);
    const ratio = (pair[0] + .05) / (pair[1] + .05);
    if (ratio < contrast) found.push(`${shown(each)} is faint: ${ratio.toFixed(1)} to 1`);
    for (const shape of shapes)
      if (meet(box, shape.box, 0) && !within(box, shape.box, shape.each.tagName === "rect" ? 3 : 0)) found.push(`${shown(each)} crosses the edge of a ${shape.each.tagName}`);
  }
  texts.forEach((a, index) => texts.slice(index + 1).forEach((b) => {
    if (meet(a.box, b.box, 1)) found.push(`${shown(a.each)} and ${shown(b.each)} overlap`);
  }));
  for (const { each, box } of lines) {
    const length = each.getTotalLength();
    const hit = new Set();
    for (let at = 0; at <= length; at += 2) {
      const { x, y } = each.getPointAtLength(at);
      const point = box.at(x, y);
      for (const text of texts)
        if (point.x > text.box.left && point.x < text.box.right && point.y > text.box.top + 2 && point.y < text.box.bottom - 2) hit.add(shown(text.each));
    }
    for (const text of hit) found.push(`a line runs through ${text}`);
  }
  return found;
}
"""
"""What is wrong with the drawing that the page shows, in words."""


def drawings() -> list[Path]:
    return [path for path in sorted(PICTURES.glob("*.svg")) if path.name not in MADE]


def flaws_of_file(path: Path) -> list[str]:
    """What needs no browser: XML, words for those who do not see it, size, style."""
    root = ElementTree.parse(path).getroot()
    found = [
        f"no <{name}> of its own"
        for name in ("title", "desc")
        if not (root.findtext(f"{SVG}{name}") or "").strip()
    ]
    if root.get("role") != "img" or root.get("aria-labelledby") != "title desc":
        found.append('not role="img" aria-labelledby="title desc"')
    least, most = WIDTHS_PX
    view = root.get("viewBox", "").split()
    if view[:2] != ["0", "0"] or view[2:] != [root.get("width"), root.get("height")]:
        found.append("its viewBox is not its width and height")
    elif not least <= int(view[2]) <= most:
        found.append(f"not {least} to {most} px wide")
    if root.findtext(f"{SVG}style") != style_text():
        found.append("another style: python -m tests.kit.docs.drawings")
    return found


def flaws_of_look(page: Page, path: Path) -> list[str]:
    """What a browser measures, on a light and on a dark page."""
    page.goto(path.as_uri())
    found: list[str] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found += page.evaluate(MEASURE, [TEXT_PX_MIN, CONTRAST_MIN])
    return list(dict.fromkeys(found))


def style_text() -> str:
    return f"\n{STYLE.read_text()}"


def put_style(path: Path) -> None:
    text = path.read_text()
    path.write_text(
        re.sub(r"<style>.*?</style>", lambda _: f"<style>{style_text()}</style>", text, flags=re.S)
    )


def photograph(browser: Browser, path: Path, folder: Path) -> None:
    """``folder``/<name>-light.png and -dark.png, with some of the page around it."""
    for scheme, ground in zip(SCHEMES, ("#ffffff", "#1e2129"), strict=True):
        page = browser.new_page(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": 940, "height": 100},
            device_scale_factor=1.5,
        )
        page.goto(path.parent.as_uri())
        page.set_content(
            f'<body style="margin:20px;background:{ground}"><img src="{path.as_uri()}">'
        )
        page.wait_for_load_state("networkidle")
        page.screenshot(path=folder / f"{path.stem}-{scheme}.png", full_page=True)
        page.close()


def main(arguments: list[str]) -> None:
    for path in drawings():
        put_style(path)
    if not arguments:
        return
    folder, *names = arguments
    Path(folder).mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        page = browser.new_page()
        for path in drawings():
            if names and path.stem not in names:
                continue
            photograph(browser, path, Path(folder))
            for flaw in [*flaws_of_file(path), *flaws_of_look(page, path)]:
                print(f"{path.name}: {flaw}")


if __name__ == "__main__":
    main(sys.argv[1:])
