"""A real S3 server, versitygw, over a folder: built once from its Go module, run on a free port.

Each object is a file below ``<folder>/<bucket>/``, so an oracle reads what was written without any
client of S3.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from exactum.java.jars import cache_folder
from tests.kit.monitor.prometheus import free_port
from tests.kit.waiting import await_true

VERSION = "1.8.0"
"""Conditional puts are atomic from this version on."""
MODULE = "github.com/versity/versitygw/cmd/versitygw"
KEY, SECRET, REGION = "test", "testsecret", "us-east-1"
BUILD_TIMEOUT_S = 3_600


@dataclass(frozen=True)
class S3:
    """``objects`` is the folder with a folder for each bucket."""

    port: int
    objects: Path

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def through(self, port: int) -> S3:
        """The same by way of a proxy."""
        return S3(port, self.objects)

    def environment(self, **more: str) -> dict[str, str]:
        """As exactum's commands need it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
            **more,
        }

    def hadoop(self, **more: str) -> dict[str, str]:
        """As Spark needs it."""
        settings = {
            "endpoint": self.endpoint,
            "endpoint.region": REGION,
            "access.key": KEY,
            "secret.key": SECRET,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            **more,
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def program() -> Path:
    """Built by Go at the first call: ten minutes on a small machine."""
    folder = cache_folder() / f"versitygw-{VERSION}"
    found = folder / "versitygw"
    if not found.exists():
        go = shutil.which("go") or "/usr/local/go/bin/go"
        subprocess.run(
            ["nice", "-n", "19", go, "install", "-p", "1", f"{MODULE}@v{VERSION}"],
            env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"},
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
    return found


@contextmanager
def s3(folder: Path, *buckets: str) -> Iterator[S3]:
    """Running, with these buckets."""
    data, people = folder / "objects", folder / "iam"
    people.mkdir(parents=True)
    for bucket in buckets:
        (data / bucket).mkdir(parents=True)
    port = free_port()
    command = [program(), "--port", f"127.0.0.1:{port}", "--iam-dir", people, "posix", data]
    own = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with (folder / "versitygw.log").open("w") as log:
        process = subprocess.Popen(
            list(map(str, command)), env={**os.environ, **own}, stdout=log, stderr=log
        )
        try:
            await_true(lambda: _answers(port) or process.poll() is not None, "versitygw answers")
            assert process.poll() is None, (folder / "versitygw.log").read_text()
            yield S3(port, data)
        finally:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    try:
        urlopen(f"http://127.0.0.1:{port}/", timeout=1)
    except HTTPError:
        return True
    except OSError:
        return False
    return True
