"""A target without transactions: an HTTP server that keeps all that it is sent. And the sink that
sends rows.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from exactum import WriteAheadSink
from tests.kit.serving import Answer, Asked, HttpServer
from tests.kit.waiting import WAIT_MAX_S


class ApiSink(WriteAheadSink):
    """The documented use: one POST for each chunk, with the key as the idempotency key."""

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(name="api", **settings)
        self.url = url

    def send(self, batch: Any, key: str) -> None:
        body = json.dumps(batch.to_pylist()).encode()
        request = urllib.request.Request(self.url, body, {"Idempotency-Key": key})
        with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as reply:
            reply.read()


class Api(HttpServer):
    """``received``: the key and the JSON of each request, in the order in which they came; a key that
    comes twice is not looked at.
    """

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.received: list[tuple[str | None, Any]] = []

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, body in self.received for row in body]

    @property
    def keys(self) -> list[str | None]:
        return [key for key, _ in self.received]

    def _answered(self, asked: Asked) -> Answer:
        self.received.append((asked.headers["Idempotency-Key"], json.loads(asked.body)))
        return 201, {}, b""
