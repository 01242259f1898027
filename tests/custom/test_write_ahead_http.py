"""``WriteAheadSink`` toward a real HTTP server, from real processes that are killed and stopped at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import http_driver
import pytest
from custom_rows import batches

EPOCHS = 4
KILLS = 8
DEADLINE_S = 90.0
SENT = batches(EPOCHS * http_driver.PARTITIONS, http_driver.ROWS)
EXPECTED = Counter(tuple(row.values()) for batch in SENT for row in batch.to_pylist())


class Api:
    """A target over HTTP. ``keeps_keys``: it answers a key that it has seen without taking the rows again."""

    def __init__(self, keeps_keys: bool, rng: random.Random) -> None:
        self.rows: list[Any] = []
        self.keys: list[str] = []
        self.unanswered = 0
        self._keeps_keys = keeps_keys
        self._rng = rng
        self._lock = threading.Lock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    return  # the client was killed half-way
                status = api.take(self.headers["Idempotency-Key"], json.loads(body))
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *args: object) -> None:
                """Quiet."""

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client was killed
                    super().handle()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/rows"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self._thread.start()

    def take(self, key: str, rows: list[Any]) -> int:
        """The status to answer with; 0: the rows are taken, and the reply is lost."""
        with self._lock:
            dice = self._rng.random()
            if dice < 0.03:
                return 503
            if not (self._keeps_keys and key in self.keys):
                self.rows += [tuple(row.values()) for row in rows]
            self.keys.append(key)
            if dice < 0.06:
                self.unanswered += 1
                return 0
            return 200

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("EXACTUM_SEED", random.randrange(2**32)))
    print(f"EXACTUM_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(params=[True, False], ids=["keeps keys", "forgets keys"])
def api(request: pytest.FixtureRequest, rng: random.Random) -> Iterator[Api]:
    served = Api(request.param, rng)
    yield served
    served.close()


def start(folder: Path, api: Api) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(Path(http_driver.__file__)), str(folder), api.url, str(EPOCHS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
    )


def wait_for_requests(api: Api, driver: subprocess.Popen[bytes], requests: int, rng: random.Random) -> None:
    """Until ``requests`` more have come, or the driver has ended; and a little longer, to hit other steps, too."""
    until, deadline_s = len(api.keys) + requests, time.monotonic() + DEADLINE_S
    while len(api.keys) < until and driver.poll() is None:
        assert time.monotonic() < deadline_s, "the driver neither sends nor ends"
        time.sleep(0.0005)
    time.sleep(rng.random() * 0.004)


def finish(driver: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, text = driver.communicate(timeout=DEADLINE_S)
    return driver.returncode, text.decode()


def judge(api: Api, keeps_keys: bool, folder: Path, crashes: int) -> None:
    """Every row arrived; a chunk was repeated at most once for each crash and for each reply that was lost."""
    repeats = len(api.keys) - len(set(api.keys))
    print(f"{len(api.keys)} requests, {repeats} repeated, {crashes} crashes, {api.unanswered} replies lost")
    assert repeats <= crashes + api.unanswered
    seen = Counter(api.rows)
    if keeps_keys:
        assert seen == EXPECTED
    else:
        assert set(seen) == set(EXPECTED)
        assert sum((seen - EXPECTED).values()) <= http_driver.ROWS_PER_SEND * (crashes + api.unanswered)
    left = [p for p in (folder / "wal").rglob("*") if p.is_file() and not p.name.startswith("sent-")]
    assert left == []


def test_killed_again_and_again(folder: Path, api: Api, rng: random.Random, request: pytest.FixtureRequest) -> None:
    """SIGKILL at random moments: exactly once where the target keeps the keys, else a chunk for each kill at most."""
    kills = 0
    while kills < KILLS:
        driver = start(folder, api)
        wait_for_requests(api, driver, rng.randint(1, 12), rng)
        driver.kill()
        code, text = finish(driver)
        assert code in (0, -signal.SIGKILL), text
        if code == 0:
            break
        kills += 1
    code, text = finish(start(folder, api))
    assert code == 0, text
    judge(api, "keeps keys" in request.node.name, folder, kills)


def test_a_stopped_driver_wakes_up(folder: Path, api: Api, rng: random.Random, request: pytest.FixtureRequest) -> None:
    """SIGSTOP in the middle, another driver does the rest, SIGCONT: the old one repeats its chunk, and stops."""
    old = start(folder, api)
    wait_for_requests(api, old, rng.randint(1, 60), rng)
    os.kill(old.pid, signal.SIGSTOP)
    try:
        code, text = finish(start(folder, api))
        assert code == 0, text
    finally:
        os.kill(old.pid, signal.SIGCONT)
    code, text = finish(old)
    assert code == 3, text
    judge(api, "keeps keys" in request.node.name, folder, 2)
