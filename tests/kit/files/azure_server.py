"""A small object store that speaks enough of Azure's Blob service for a move of objects, and answers
a copy before it is made, as the service may (Copy Blob: 202, ``x-ms-copy-status: pending``). An empty
object stands there until then; a source that is gone by then fails the copy.
"""

from __future__ import annotations

import base64
import re
import threading
from contextlib import AbstractContextManager
from email.utils import formatdate
from hashlib import md5
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.kit.serving import Answer, Asked, HttpServer, serving

CONTAINER = "files"


class AzureServer(HttpServer):
    def __init__(self, copies_take_s: float) -> None:
        super().__init__(self._answered)
        self.copies_take_s = copies_take_s
        self.objects: dict[str, bytes] = {}
        self._blocks: dict[str, bytes] = {}
        self._lock = threading.RLock()

    @property
    def settings(self) -> dict[str, Any]:
        """obstore's, for ``store=``."""
        key = base64.b64encode(b"k" * 32).decode()
        return {
            "account_name": "me",
            "account_key": key,
            "endpoint": self.url,
            "allow_http": True,
        }

    def _answered(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        key = _key(parts.path)
        with self._lock:
            if asked.method == "PUT":
                return self._put(key, query, asked)
            if asked.method == "POST":
                return self._deleted(asked.body)
            if query.get("comp") == "list":
                return 200, {}, self._listing(query)
            if asked.method == "DELETE":
                return (404 if self.objects.pop(key, None) is None else 202), {}, b""
            if key not in self.objects:
                return 404, {}, b""
            return 200, _facts(self.objects[key]), self.objects[key]

    def _put(self, key: str, query: dict[str, str], asked: Asked) -> Answer:
        content = asked.body
        if query.get("comp") == "block":
            self._blocks[query["blockid"]] = content
            return 201, {}, b""
        if asked.headers.get("If-None-Match") == "*" and key in self.objects:
            return 409, {}, b"<Error><Code>BlobAlreadyExists</Code></Error>"
        source = asked.headers.get("x-ms-copy-source")
        if source is not None:
            what = _key(urlsplit(source).path), key
            copying = threading.Timer(self.copies_take_s, self._copied, what)
            copying.daemon = True
            copying.start()
            self.objects[key] = b""
            return 202, {**_facts(b""), "x-ms-copy-status": "pending"}, b""
        if query.get("comp") == "blocklist":
            ids = re.findall(r"<(?:Uncommitted|Latest|Committed)>([^<]+)<", content.decode())
            content = b"".join(self._blocks.pop(each) for each in ids)
        self.objects[key] = content
        return 201, _facts(content), b""

    def _copied(self, source: str, key: str) -> None:
        with self._lock:
            if source in self.objects:
                self.objects[key] = self.objects[source]

    def _deleted(self, batch: bytes) -> Answer:
        parts = []
        for number, path in enumerate(re.findall(rb"DELETE /?(\S+) HTTP", batch)):
            self.objects.pop(_key("/" + urlsplit(path.decode()).path.lstrip("/")), None)
            parts.append(
                f"--all\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                "HTTP/1.1 202 Accepted\r\nx-ms-request-id: 1\r\nx-ms-version: 2023-11-03\r\n\r\n"
            )
        kind = {"Content-Type": "multipart/mixed; boundary=all"}
        return 202, kind, ("".join(parts) + "--all--").encode()

    def _listing(self, query: dict[str, str]) -> bytes:
        keys = [key for key in sorted(self.objects) if key.startswith(query.get("prefix", ""))]
        found = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties>"
            f"<Last-Modified>{formatdate(usegmt=True)}</Last-Modified><Etag>1</Etag>"
            f"<Content-Length>{len(self.objects[key])}</Content-Length>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            for key in keys
        )
        return (
            f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker/></EnumerationResults>".encode()
        )


def _key(path: str) -> str:
    return unquote(path).removeprefix(f"/{CONTAINER}/")


def _facts(content: bytes) -> dict[str, str]:
    return {
        "ETag": f'"{md5(content).hexdigest()}"',
        "Last-Modified": formatdate(usegmt=True),
        "x-ms-blob-type": "BlockBlob",
    }


def azure_server(copies_take_s: float) -> AbstractContextManager[AzureServer]:
    return serving(AzureServer(copies_take_s))
