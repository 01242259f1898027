"""Builds the site into site/ and looks at every link of it: ``python -m tests.kit.docs.site``.

The generator fails for a page or an anchor that a page names and nobody has, but not for a picture,
for another file, or for what griffe says of a docstring. That is looked for here. Needs nothing but
the standard library, for it runs in the environment of the site's tools.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.kit.waiting import WAIT_MAX_S

ROOT = Path(__file__).parents[3]
SITE = ROOT / "site"
BUILD_TIMEOUT_S = WAIT_MAX_S
TRIES_MAX = 3
DISTURBED = "Watcher disconnected"
"""The generator (zensical 0.0.73) watches the folder for one build as well, and ends with this
where files come and go meanwhile: CI builds the wheel and environments beside it.
"""
WARNINGS = ("griffe:", "mkdocstrings:", "mkdocs_autorefs:", "warning:")
"""What a line begins with that tells of something wrong."""
ELSEWHERE = ("https://zensical.org/",)
"""The footer's link to the generator. No page may fetch or name anything else on the internet."""


class Page(HTMLParser):
    """What a page of HTML links to, fetches, and can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value is not None:
                self.targets.append(value)


def build() -> list[str]:
    """Build the site anew; what was wrong, line by line."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    for _ in range(TRIES_MAX):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        said = done.stdout + done.stderr
        if done.returncode == 0 or DISTURBED not in said:
            break
    wrong = [line for line in said.splitlines() if line.strip().lower().startswith(WARNINGS)]
    return wrong if done.returncode == 0 else [*wrong, said]


def dead_links(site: Path) -> list[str]:
    """Each link of each page that leads nowhere, or away."""
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    return [
        f"{file.relative_to(site)}: {target}"
        for file, page in pages.items()
        if file.name != "404.html"  # served at every address, so its links are absolute
        for target in dict.fromkeys(page.targets)
        if not _leads_somewhere(target, file, pages, site.resolve())
    ]


def _leads_somewhere(target: str, file: Path, pages: dict[Path, Page], site: Path) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return target.startswith(ELSEWHERE) or parts.hostname == "127.0.0.1"
    there = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if there.is_dir():
        there /= "index.html"
    if not there.is_file() or site not in there.parents:
        return False
    return not parts.fragment or there not in pages or _has(pages[there].anchors, parts.fragment)


def _has(anchors: Iterable[str], fragment: str) -> bool:
    return unquote(fragment) in anchors


def findings() -> Iterator[str]:
    """Build, then look."""
    if wrong := build():
        yield from wrong
    else:
        yield from dead_links(SITE)


if __name__ == "__main__":
    found = list(findings())
    print("\n".join(found) or f"{SITE}/index.html: every link leads somewhere")
    sys.exit(bool(found))
