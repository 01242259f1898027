"""A server of a test's own, which answers in a thread."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

ServerT = TypeVar("ServerT", bound=socketserver.BaseServer)
POLL_S = 0.05


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    """It answers until the block ends; then nobody listens any more."""
    with server:
        name = f"tests-{type(server).__name__}"
        thread = threading.Thread(
            target=server.serve_forever, args=(POLL_S,), name=name, daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
