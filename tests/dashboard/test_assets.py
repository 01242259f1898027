"""What the browser needs comes from the wheel, as its makers published it, with its licence."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import exactum.ops.dashboard.routes as routes
from exactum.monitor.http_server import HttpRequest
from tests.kit.environment import ROOT

FOLDER = Path("src/exactum/ops/dashboard")
OWN = {"page.js", "page.css", "icon.svg"}


def test_files_of_others_are_theirs() -> None:
    """Each has its checksum, its version and its licence in VENDORED.md, and nothing else is there."""
    assets = ROOT / FOLDER / "assets"
    text = (assets / "VENDORED.md").read_text()
    noted = dict(reversed(line.split()) for line in re.findall(r"^[0-9a-f]{64} .*$", text, re.M))
    for name, digest in noted.items():
        assert hashlib.sha256((assets / name).read_bytes()).hexdigest() == digest, name
        assert re.search(rf"\| {re.escape(name)} \|.*LICENSE\.txt \|", text)
    licences = {"htmx.LICENSE.txt", "uplot.LICENSE.txt", "VENDORED.md"}
    assert {path.name for path in assets.iterdir()} == {*noted, *licences, *OWN}
    assert all((assets / name).stat().st_size < 60_000 for name in (*noted, *OWN))


def test_our_own_script_and_style_need_nothing_from_elsewhere() -> None:
    """No address of others, no code made of text, no style in the HTML."""
    for name in ("page.js", "page.css"):
        text = (ROOT / FOLDER / "assets" / name).read_text()
        assert not re.search(r"https?://|//[a-z]+\.|@import|\beval\(|new Function|innerHTML", text)
    for path in (ROOT / FOLDER / "templates").iterdir():
        text = path.read_text()
        assert not re.search(r"https?://|\sstyle=|<style|\son[a-z]+=|hx-on|\|\s*safe", text), (
            path.name
        )


def test_without_jinja2_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """exactum run goes on without it."""
    monkeypatch.setattr(routes, "NEEDED", "no_such_module")
    served = routes.dashboard_routes(None)  # type: ignore[arg-type]
    response = served["/"](HttpRequest("/"))
    assert response.status == 503
    assert b"pip install 'exactum[dashboard]'" in response.body
