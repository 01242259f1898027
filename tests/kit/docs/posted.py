"""A server that takes what is sent to it by POST, and keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kit.serving import Answer, Asked, HttpServer, serving

Posted = list[tuple[str | None, Any]]


@contextmanager
def posted() -> Iterator[tuple[str, Posted]]:
    """Its address, and the key and the JSON of each request so far."""
    received: Posted = []

    def take(asked: Asked) -> Answer:
        received.append((asked.headers["Idempotency-Key"], json.loads(asked.body)))
        return 201, {}, b""

    with serving(HttpServer(take)) as server:
        yield server.url, received
