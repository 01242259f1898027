"""A driver's own metrics and probes: served by it, or shown in a registry that the process serves
itself.

Under ``exactum run`` neither is needed: the supervisor serves, and outlives the driver.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from exactum.errors import SettingRefused
from exactum.monitor.http_server import HttpHandler, HttpRequest, HttpResponse, HttpServer
from exactum.monitor.job_sources import JobSource, ScriptJobs
from exactum.monitor.recorder import RECORDER
from exactum.monitor.script_stats import ScriptState
from exactum.monitor.verdict import judge
from exactum.packages import HERE, not_installed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MISSING = not_installed("Metrics need", "prometheus-client", "metrics", HERE)
JOBS = ScriptJobs(RECORDER.stats, with_history=False)
"""The states of this process's queries."""


class MetricsServer:
    """Made by ``exactum.serve_metrics``. ``url`` is the page to scrape."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.url = f"{server.url}/metrics"

    def close(self) -> None:
        """Stop serving. The queries go on. Idempotent."""
        self._server.close()


def serve_metrics(port: int, host: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of this driver's queries for Prometheus, until the process ends.

    Paths: ``/metrics``; ``/livez``, 200 as long as the process answers; ``/readyz``, 200 while
    every query is OK or SLOW, else 503 with the reason. It works in threads of its own: no trouble
    of it stops a query. Queries that run already are shown, too.

    A script under ``exactum run`` need not call it: ``exactum run`` serves the same, and goes on
    when the driver has died.

    Args:
        port: where to listen; 0 takes a free port (see ``url`` of what is returned).
        host: the address to listen on. There is no login: another one than ``127.0.0.1`` lets
            whoever reaches it read the names of queries, sinks and topics.

    Raises:
        SettingRefused: the port is taken or not allowed, or ``exactum[metrics]`` is not installed.
    """
    handler = metrics_handler_of(JOBS)
    if handler is None:
        raise SettingRefused("PACKAGE_MISSING", f"{MISSING} Nothing is served.")
    if type(port) is not int or not 0 <= port <= 65_535:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"serve_metrics: port must be a number from 0 to 65535, not {port!r}.",
        )
    return MetricsServer(
        HttpServer({"/metrics": handler, **probes(JOBS)}, host, port, ports_tried=1)
    )


_registered: weakref.WeakSet[CollectorRegistry] = weakref.WeakSet()
_registering = threading.Lock()


def register_metrics(registry: CollectorRegistry | None = None) -> None:
    """Show this driver's queries in a registry of prometheus_client, for a process that serves its
    own metrics already. Idempotent for each registry.

    Args:
        registry: a ``prometheus_client.CollectorRegistry``; None takes prometheus_client's default
            one. With prometheus_client's multiprocess mode it cannot be used: custom collectors are
            not allowed there.

    Raises:
        SettingRefused: ``exactum[metrics]`` is not installed.
    """
    try:
        from exactum.monitor import metrics
    except ImportError as error:
        raise SettingRefused("PACKAGE_MISSING", f"{MISSING} Nothing is registered.") from error
    chosen = metrics.default_registry() if registry is None else registry
    with _registering:
        if chosen in _registered:
            return
        chosen.register(metrics.MetricsCollector(JOBS, lambda: RECORDER.dropped))
        _registered.add(chosen)


def metrics_handler_of(
    source: JobSource, script: Callable[[], ScriptState] | None = None
) -> HttpHandler | None:
    """Serves the queries of ``source``, and ``script``; None where ``exactum[metrics]`` is not
    installed.
    """
    try:
        from exactum.monitor import metrics
    except ImportError:
        return None
    return metrics.metrics_handler(
        metrics.MetricsCollector(source, lambda: RECORDER.dropped, script)
    )


def probes(
    source: JobSource,
    script: Callable[[], ScriptState] | None = None,
    lives: Callable[[], str] = lambda: "",
) -> dict[str, HttpHandler]:
    """``/livez`` and ``/readyz``. ``lives`` says why it does not, or nothing."""

    def livez(request: HttpRequest) -> HttpResponse:
        trouble = lives()
        return HttpResponse.text(f"{trouble or 'lives'}\n", 503 if trouble else 200)

    def readyz(request: HttpRequest) -> HttpResponse:
        why = unready(source, None if script is None else script())
        return HttpResponse.text("\n".join(why or ["ready"]) + "\n", 503 if why else 200)

    return {"/livez": livez, "/readyz": readyz}


def unready(source: JobSource, script: ScriptState | None = None) -> list[str]:
    """Why not every query is OK or SLOW, a line each. One that was stopped, or has read all that it
    was to read, does not count. ``script``: where there is a supervisor, what it sees.
    """
    if script is not None and script.unready:
        return [script.unready]
    jobs = source.jobs().values()
    found = [(job, judge(job)) for job in jobs if not job.stats.has_stopped]
    bad = [
        f"Query {job.name} is {own.verdict.value}. {own.reason}"
        for job, own in found
        if not own.verdict.is_working
    ]
    return bad if jobs else ["No query has begun."]
