"""The page's addresses, for ``monitor.http_server``.

    /, /script
    /query/<key>, /query/<key>/batch/<n>
    /fragment/...      the same, only what changes; /fragment/query/<key>/plots is JSON
    /assets/<name>

A key is that of a known query; none becomes a path.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

from exactum.monitor.http_server import HttpHandler, HttpRequest, HttpResponse
from exactum.ops.dashboard.batch import batch_of
from exactum.ops.dashboard.picture import PageSource
from exactum.packages import HERE, not_installed

ASSETS = Path(__file__).parent / "assets"
CONTENT_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
DIGITS_MAX = 18
NEEDED = "jinja2"
NOT_INSTALLED = f"{not_installed('The page needs', NEEDED, 'dashboard', HERE)}\n"


def is_installed() -> bool:
    """Whether what the page needs is there."""
    return importlib.util.find_spec(NEEDED) is not None


def dashboard_routes(source: PageSource) -> dict[str, HttpHandler]:
    """The page over a source. Where jinja2 is missing, a page that says so."""
    if not is_installed():
        return {"/": lambda request: HttpResponse.text(NOT_INSTALLED, 503)}
    routes = _Routes(source)
    return {
        "/": lambda request: routes.overview(part=False),
        "/script": lambda request: routes.script(part=False),
        "/query/": lambda request: routes.query(request, "/query/", part=False),
        "/fragment/overview": lambda request: routes.overview(part=True),
        "/fragment/script": lambda request: routes.script(part=True),
        "/fragment/query/": lambda request: routes.query(request, "/fragment/query/", part=True),
        "/assets/": asset,
    }


class _Routes:
    def __init__(self, source: PageSource) -> None:
        from exactum.ops.dashboard.pages import Pages

        self._source = source
        self._pages = Pages(has_script=source.script() is not None)

    def overview(self, *, part: bool) -> HttpResponse:
        return _html(self._pages.overview(self._source.pictures(), part=part))

    def script(self, *, part: bool) -> HttpResponse:
        picture = self._source.script()
        if picture is None:
            return self._missing("There is no script here: these are checkpoints, read from disk.")
        return _html(self._pages.script(picture, part=part))

    def query(self, request: HttpRequest, prefix: str, *, part: bool) -> HttpResponse:
        """Only keys of known queries lead anywhere; none becomes a path."""
        key, *rest = request.path.removeprefix(prefix).split("/")
        picture = next((picture for picture in self._source.pictures() if picture.key == key), None)
        if picture is None:
            return self._missing(f"No query {key[:100]!r} is known here.")
        if not rest:
            return _html(self._pages.query(picture, _batches(request.query), part=part))
        if rest == ["plots"] and part:
            return _json(self._source.plots(key))
        batch_id = _whole(rest[1]) if len(rest) == 2 and rest[0] == "batch" else None
        if batch_id is None:
            return self._missing("There is no such page of this query.")
        return _html(self._pages.batch(picture, batch_of(picture, batch_id), part=part))

    def _missing(self, what: str) -> HttpResponse:
        return _html(self._pages.missing(what), 404)


def asset(request: HttpRequest) -> HttpResponse:
    """A file of the folder ``assets``, by its name alone."""
    name = request.path.removeprefix("/assets/")
    known = {path.name: path for path in ASSETS.iterdir() if path.suffix in CONTENT_TYPES}
    path = known.get(name)
    if path is None:
        return HttpResponse.text("There is no such file.\n", 404)
    headers = {"Cache-Control": "no-cache"}
    return HttpResponse(path.read_bytes(), CONTENT_TYPES[path.suffix], headers=headers)


def _html(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(text.encode("utf-8", "replace"), status=status)


def _json(value: Mapping[str, object]) -> HttpResponse:
    body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return HttpResponse(body, "application/json")


def _batches(query: Mapping[str, str]) -> int:
    from exactum.ops.dashboard.pages import BATCHES_SHOWN

    return _whole(query.get("batches", "")) or BATCHES_SHOWN


def _whole(text: str) -> int | None:
    """A number of a micro-batch; None where it is none."""
    plain = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if plain else None
