"""A small object store that speaks enough of S3 for obstore: objects in memory, over HTTP on a free
port.

``condition``: how it takes ``If-None-Match: *``. "kept": as S3 does. "ignored": as stores do that
never heard of it. "raced": looks first and puts later, as a proxy in front of one may.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from email.utils import formatdate
from hashlib import md5
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.kit.serving import Answer, Asked, HttpServer, serving

BUCKET = "bucket"
ALONE_AFTER_S = 20.0
"""Whoever looked, and met nobody: longer than a busy machine takes for several requests at once."""


class S3Server(HttpServer):
    def __init__(self, condition: str) -> None:
        super().__init__(self._answered)
        self.condition = condition
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self._looked = threading.Condition()
        self._looks = Counter[str]()
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
            "endpoint": self.url,
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
            with self._looked:  # between its look and its put another one looks
                self._looks[key] += 1
                self._looked.notify_all()
                self._looked.wait_for(lambda: self._looks[key] > 1, ALONE_AFTER_S)
            if there:
                return False
            asked = False
        with self.lock:
            if asked and key in self.objects:
                return False
            self.objects[key] = content
            return True

    def _answered(self, asked: Asked) -> Answer:
        """With the tag of the object that it is about, if any."""
        status, body, content, more = self._done(asked)
        if self.refusal is not None:
            status, code = self.refusal
            body, content = _error(code), None
        tag = {} if content is None else {"ETag": _tag(content)}
        return status, {"Last-Modified": formatdate(usegmt=True), **tag, **more}, body

    def _done(self, asked: Asked) -> tuple[int, bytes, bytes | None, dict[str, str]]:
        if asked.method not in ("GET", "HEAD"):
            self.change()
            return (*self._changed(asked), {})
        parts = urlsplit(asked.path)
        if parts.path.strip("/") == BUCKET:
            query = parse_qs(parts.query, keep_blank_values=True)
            return 200, self._listing(query), None, {}
        content = self.objects.get(_key(asked))
        if content is None:
            return 404, b"", None, {}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", asked.headers.get("Range", ""))
        if wanted is None:
            return 200, content, content, {}
        first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
        place = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        return 206, content[first : last + 1], content, place

    def _changed(self, asked: Asked) -> tuple[int, bytes, bytes | None]:
        key = _key(asked)
        if self.refusal is not None:
            return 403, b"", None
        if asked.method == "PUT":
            return self._put(key, asked)
        if asked.method == "DELETE":
            self.objects.pop(key, None)
            return 204, b"", None
        keys = re.findall(r"<Key>(.*?)</Key>", asked.body.decode())
        for key in keys:
            self.objects.pop(key, None)
        gone = "".join(f"<Deleted><Key>{escape(k)}</Key></Deleted>" for k in keys)
        return 200, f"<DeleteResult>{gone}</DeleteResult>".encode(), None

    def _put(self, key: str, asked: Asked) -> tuple[int, bytes, bytes | None]:
        source = asked.headers.get("x-amz-copy-source")
        if source is not None:
            content = self.objects.get(unquote(source).lstrip("/").removeprefix(f"{BUCKET}/"))
            if content is None:
                return 404, _error("NoSuchKey"), None
            self.put(key, content, if_absent=False)
            tag = f"<CopyObjectResult><ETag>{_tag(content)}</ETag></CopyObjectResult>"
            return 200, tag.encode(), content
        if self.broken:
            return 500, _error("InternalError"), None
        if "/probe-" in key:
            self.probes.add(key)
        done = self.put(key, asked.body, if_absent=asked.headers.get("If-None-Match") == "*")
        return (200, b"", asked.body) if done else (412, _error("PreconditionFailed"), asked.body)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("start-after", [""])[0]
        there = ((k, c) for k, c in self.objects.items() if k.startswith(prefix))
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


def _key(asked: Asked) -> str:
    return unquote(urlsplit(asked.path).path).removeprefix(f"/{BUCKET}/")


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()


def _tag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'


def s3_server(condition: str) -> AbstractContextManager[S3Server]:
    return serving(S3Server(condition))
