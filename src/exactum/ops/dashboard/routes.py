"""The page's addresses, for ``monitor.http_server``.

    /                                      every query
    /job/<key>                             with ?part=1 only what changes
    /job/<key>.json                        the state that the page is drawn from
    /assets/<name>

A key is that of a known query; none becomes a path.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from exactum.monitor.http_server import HttpHandler, HttpRequest, HttpResponse
from exactum.monitor.job_sources import JobSource
from exactum.ops import render
from exactum.packages import HERE, not_installed

ASSETS = Path(__file__).parent / "assets"
CONTENT_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
NEEDED = "jinja2"
NOT_INSTALLED = f"{not_installed('The page needs', NEEDED, 'dashboard', HERE)}\n"


def is_installed() -> bool:
    """Whether what the page needs is there."""
    return importlib.util.find_spec(NEEDED) is not None


def dashboard_routes(source: JobSource) -> dict[str, HttpHandler]:
    """The page over a source. Where jinja2 is missing, a page that says so."""
    if not is_installed():
        return {"/": lambda request: HttpResponse.text(NOT_INSTALLED, 503)}
    routes = _Routes(source)
    return {"/": routes.overview, "/job/": routes.job, "/assets/": asset}


class _Routes:
    def __init__(self, source: JobSource) -> None:
        from exactum.ops.dashboard.pages import Pages

        self._source = source
        self._pages = Pages()

    def overview(self, request: HttpRequest) -> HttpResponse:
        return _html(self._pages.overview(self._source.jobs(), request))

    def job(self, request: HttpRequest) -> HttpResponse:
        """Only keys of known queries lead anywhere."""
        name = request.path.removeprefix("/job/")
        key = name.removesuffix(".json")
        job = self._source.jobs().get(key)
        if job is None:
            return _html(self._pages.missing(f"No query {key[:100]!r} is known here."), 404)
        if key != name:
            return HttpResponse(json.dumps(render.job_value(job)).encode(), "application/json")
        return _html(self._pages.job(key, job, request))


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
