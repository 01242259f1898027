"""A target without transactions: an HTTP server that keeps every row it is sent. And the sink that
sends them.
"""

from __future__ import annotations

import json
import threading
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
    """``rows`` in the order in which they came, ``keys`` likewise; a key that comes twice is not
    looked at.
    """

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.rows: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._lock = threading.Lock()

    def _answered(self, asked: Asked) -> Answer:
        with self._lock:
            self.rows += json.loads(asked.body)
            self.keys.append(asked.headers["Idempotency-Key"])
        return 200, {}, b""
