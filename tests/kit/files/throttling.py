"""An HTTP proxy in front of an S3 server that refuses some requests, or all."""

from __future__ import annotations

import http.client
import itertools

from tests.kit.serving import Answer, Asked, HttpServer

HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "expect"))


class Throttling(HttpServer):
    """Each ``every``-th request is answered by SlowDown; 0: none. ``refusal``: a status and one of
    S3's codes, answered to everything.
    """

    def __init__(self, target_port: int, every: int) -> None:
        super().__init__(self._pass_on)
        self.target_port = target_port
        self.every = every
        self.refusal: tuple[int, str] | None = None
        self.refused = 0
        self.numbers = itertools.count(1)

    def _pass_on(self, asked: Asked) -> Answer:
        number, refusal = next(self.numbers), self.refusal
        if refusal is None and self.every and number % self.every == 0:
            refusal = (503, "SlowDown")
        if refusal is not None:
            self.refused += 1
            text = f"<Error><Code>{refusal[1]}</Code><Message>{refusal[1]}</Message></Error>"
            return refusal[0], {"Content-Type": "application/xml"}, text.encode()
        behind = http.client.HTTPConnection("127.0.0.1", self.target_port, timeout=60)
        try:
            behind.putrequest(asked.method, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():
                if name.lower() not in HOP:
                    behind.putheader(name, value)
            behind.endheaders(asked.body)
            answer = behind.getresponse()
            content = answer.read()
            headers = {n.title(): v for n, v in answer.getheaders() if n.lower() not in HOP}
            return answer.status, headers, content
        finally:
            behind.close()
