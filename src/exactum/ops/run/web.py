"""What ``exactum run`` serves: metrics and probes, from the process that outlives the driver.

No trouble of it is the script's: where nothing can be served, one line says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from exactum.monitor.http_server import (
    LOOPBACK,
    PORTS_TRIED_MAX,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    HttpServer,
)
from exactum.monitor.job_sources import ScriptJobs
from exactum.monitor.metrics_server import MISSING, metrics_handler_of, probes
from exactum.ops.dashboard.routes import dashboard_routes
from exactum.ops.run.script_facts import ScriptFacts
from exactum.ops.run.values import ListenAddress

CLOSE_TIMEOUT_S = 2.0
LOOP_MAX_S = 60.0
"""How long the supervisor's loop may be in one turn: it kills a process tree and waits for its
end.
"""


def routes(facts: ScriptFacts) -> Mapping[str, HttpHandler]:
    """All that is served, by path."""
    source = ScriptJobs(facts.stats, with_history=True)
    metrics = metrics_handler_of(source, facts.state)

    def lives() -> str:
        silent_s = facts.silent_s()
        return "" if silent_s < LOOP_MAX_S else f"exactum run hangs for {silent_s:.0f} s."

    return {
        "/metrics": _missing if metrics is None else metrics,
        **probes(source, facts.state, lives),
        **dashboard_routes(source),
    }


def _missing(request: HttpRequest) -> HttpResponse:
    return HttpResponse.text(f"{MISSING} Then start exactum run again.\n", 501)


@contextmanager
def serving(
    address: ListenAddress | None, facts: ScriptFacts, say: Callable[[str], None]
) -> Iterator[None]:
    """Serve while entered, at ``address`` or at one of the next 16 ports. Raises nothing of its
    own.
    """
    server = None if address is None else _served(address, facts, say)
    try:
        yield
    finally:
        if server is not None:
            # A browser that does not read is not waited for: the process ends anyway.
            closing = threading.Thread(target=server.close, name="exactum-close", daemon=True)
            closing.start()
            closing.join(CLOSE_TIMEOUT_S)


def _served(
    address: ListenAddress, facts: ScriptFacts, say: Callable[[str], None]
) -> HttpServer | None:
    tried = 1 if address.port == 0 else 1 + PORTS_TRIED_MAX
    try:
        server = HttpServer(routes(facts), address.host, address.port, tried)
    except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the script's)
        say(f"nothing is served, and the script runs all the same. {error}")
        return None
    say(f"{server.url}/ serves the page, metrics and probes")
    if address.host not in LOOPBACK:
        say(
            f"whoever reaches {address.host} can read what is served there: it has no login. "
            "127.0.0.1 is this machine alone"
        )
    return server
