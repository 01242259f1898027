"""A small object store that speaks enough of S3 for obstore: objects in memory, over HTTP on a free
port.

``condition``: how it takes ``If-None-Match: *``. "kept": as S3 does. "ignored": as stores do that
never heard of it. "raced": looks first and puts later, as a proxy in front of one may.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import AbstractContextManager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.kit.serving import serving

BUCKET = "bucket"


class S3Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, condition: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.condition = condition
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.broken = False
        self.refusal: tuple[int, str] | None = None
        """A status and one of S3's codes, answered to everything."""
        self.probes: set[str] = set()
        self.changes = 0
        self.ends_at: int | None = None
        """From this change on, counted from 1, every request is refused: as if its client had
        died.
        """

    @property
    def tried(self) -> int:
        """How many runs have tried the condition."""
        return len(self.probes)

    @property
    def settings(self) -> dict[str, Any]:
        """obstore's, for ``store=``."""
        return {
            "endpoint": f"http://127.0.0.1:{self.server_address[1]}",
            "region": "us-east-1",
            "access_key_id": "any",
            "secret_access_key": "any",
            "allow_http": True,
            "virtual_hosted_style_request": False,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same for commands."""
        return {
            "AWS_ENDPOINT_URL": str(self.settings["endpoint"]),
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def change(self) -> None:
        """Another request changes something."""
        with self.lock:
            self.changes += 1
            if self.ends_at is not None and self.changes >= self.ends_at:
                self.refusal = (403, "AccessDenied")

    def put(self, key: str, content: bytes, *, if_absent: bool) -> bool:
        asked = if_absent and self.condition != "ignored"
        if self.condition == "raced" and asked:
            there = key in self.objects
            time.sleep(0.3)  # between its look and its put others come
            if there:
                return False
            asked = False
        with self.lock:
            if asked and key in self.objects:
                return False
            self.objects[key] = content
            return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.change()
        if self.server.refusal is not None:
            self._answer(403, b"")
            return
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            self._copy(unquote(source).lstrip("/").removeprefix(f"{BUCKET}/"))
            return
        if self.server.broken:
            self._answer(500, b"<Error><Code>InternalError</Code></Error>")
            return
        if "/probe-" in self._key():
            self.server.probes.add(self._key())
        done = self.server.put(
            self._key(), content, if_absent=self.headers.get("If-None-Match") == "*"
        )
        self._answer(
            200 if done else 412,
            b"" if done else b"<Error><Code>PreconditionFailed</Code></Error>",
            content,
        )

    def _copy(self, source: str) -> None:
        content = self.server.objects.get(source)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.server.put(self._key(), content, if_absent=False)
        tag = f"<CopyObjectResult><ETag>{_tag(content)}</ETag></CopyObjectResult>"
        self._answer(200, tag.encode(), content)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.strip("/") == BUCKET:
            self._answer(200, self._listing(parse_qs(parts.query, keep_blank_values=True)))
            return
        content = self.server.objects.get(self._key())
        if content is None:
            self._answer(404, b"")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, content, content)
            return
        first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
        self._range = f"bytes {first}-{last}/{len(content)}"
        self._answer(206, content[first : last + 1], content)

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self) -> None:
        self.server.change()
        if self.server.refusal is None:
            self.server.objects.pop(self._key(), None)
        self._answer(204, b"")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall(r"<Key>(.*?)</Key>", asked)
        self.server.change()
        for key in keys if self.server.refusal is None else ():
            self.server.objects.pop(key, None)
        gone = "".join(f"<Deleted><Key>{escape(k)}</Key></Deleted>" for k in keys)
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("start-after", [""])[0]
        there = ((k, c) for k, c in self.server.objects.items() if k.startswith(prefix))
        found = sorted((k, c) for k, c in there if k > after)
        mark = query.get("delimiter", [""])[0]
        deep = {k: k[len(prefix) :].partition(mark) for k, _ in found} if mark else {}
        folders = sorted({f"{prefix}{top}{mark}" for top, cut, _ in deep.values() if cut})
        found = [(k, c) for k, c in found if k not in deep or not deep[k][1]]
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders
        )
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        contents = "".join(
            f"<Contents><Key>{escape(k)}</Key><LastModified>{when}</LastModified><ETag>{_tag(c)}</ETag>"
            f"<Size>{len(c)}</Size></Contents>"
            for k, c in found
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>".encode()

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _answer(self, status: int, body: bytes, content: bytes | None = None) -> None:
        if self.server.refusal is not None:
            status, code = self.server.refusal
            body, content = f"<Error><Code>{code}</Code></Error>".encode(), None
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", formatdate(usegmt=True))
        if status == 206:
            self.send_header("Content-Range", self._range)
        if content is not None:
            self.send_header("ETag", _tag(content))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not on the terminal."""


def _tag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'


def s3_server(condition: str) -> AbstractContextManager[S3Server]:
    return serving(S3Server(condition))
