"""``WriteAheadSink`` toward a real HTTP server, from real processes that are killed and stopped
at random moments.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.custom import http_driver
from tests.kit.custom.custom_rows import batches
from tests.kit.staged_files import waiting
from tests.kit.targets.api import Api
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([http_driver.__name__])
EPOCHS = 4
KILLS = 5
DEADLINE_S = WAIT_MAX_S
SENDS_PER_EPOCH = http_driver.PARTITIONS * http_driver.ROWS // http_driver.ROWS_PER_SEND
SENT = batches(EPOCHS * http_driver.PARTITIONS, http_driver.ROWS)
EXPECTED = Counter(tuple(row.values()) for batch in SENT for row in batch.to_pylist())


class FickleApi(Api):
    """``keeps_keys``: it answers a key that it has seen without taking the rows again. It fails now
    and then.

    From ``held_from`` requests on, it takes none and answers none until it is ``released``.
    """

    def __init__(self, keeps_keys: bool, rng: random.Random) -> None:
        self.unanswered = 0
        self.held_from: int | None = None
        self.released = threading.Event()
        self._keeps_keys = keeps_keys
        self._rng = rng
        super().__init__()

    def take(self, key: str, rows: list[dict[str, Any]]) -> int:
        """With some luck; 0: the rows are taken, and the reply is lost."""
        if self.held_from is not None and len(self.keys) >= self.held_from:
            self.released.wait(DEADLINE_S)
        dice = self._rng.random()
        if dice < 0.03:
            return 503
        if not (self._keeps_keys and key in self.keys):
            self.rows += rows
        self.keys.append(key)
        if dice < 0.06:
            self.unanswered += 1
            return 0
        return 200


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("EXACTUM_SEED", random.randrange(2**32)))
    print(f"EXACTUM_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(params=[True, False], ids=["keeps keys", "forgets keys"])
def api(request: pytest.FixtureRequest, rng: random.Random) -> Iterator[FickleApi]:
    served = FickleApi(request.param, rng)
    yield served
    served.stop()


def start(folder: Path, api: FickleApi) -> ForkServerProcess:
    driver = FORKS.Process(target=http_driver.main, args=(folder, api.url, EPOCHS))
    driver.start()
    return driver


def wait_for_requests(
    api: FickleApi, driver: ForkServerProcess, requests: int, rng: random.Random
) -> None:
    """Until ``requests`` more have come, or the driver has ended; and a little longer, to hit
    other steps, too.
    """
    until, deadline_s = len(api.keys) + requests, time.monotonic() + DEADLINE_S
    while len(api.keys) < until and driver.is_alive():
        assert time.monotonic() < deadline_s, "the driver neither sends nor ends"
        time.sleep(0.0005)
    time.sleep(rng.random() * 0.004)


def finish(driver: ForkServerProcess) -> int | None:
    """Its exit code; what it has to say is on the terminal."""
    driver.join(DEADLINE_S)
    return driver.exitcode


def judge(api: FickleApi, keeps_keys: bool, folder: Path, crashes: int) -> None:
    """Every row arrived; a chunk was repeated at most once for each crash and for each reply
    that was lost.
    """
    repeats = len(api.keys) - len(set(api.keys))
    print(
        f"{len(api.keys)} requests, {repeats} repeated, {crashes} crashes, {api.unanswered} "
        "replies lost"
    )
    assert repeats <= crashes + api.unanswered
    seen = Counter(tuple(row.values()) for row in api.rows)
    if keeps_keys:
        assert seen == EXPECTED
    else:
        assert set(seen) == set(EXPECTED)
        assert sum((seen - EXPECTED).values()) <= http_driver.ROWS_PER_SEND * (
            crashes + api.unanswered
        )
    assert waiting(folder / "wal") == []


@pytest.mark.deep
def test_killed_again_and_again(
    folder: Path, api: FickleApi, rng: random.Random, request: pytest.FixtureRequest
) -> None:
    """SIGKILL at random moments: exactly once where the target keeps the keys, else a chunk for
    each kill at most.
    """
    kills = 0
    while kills < KILLS:
        driver = start(folder, api)
        wait_for_requests(api, driver, rng.randint(1, 12), rng)
        driver.kill()
        code = finish(driver)
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            break
        kills += 1
    assert finish(start(folder, api)) == 0
    judge(api, "keeps keys" in request.node.name, folder, kills)


@pytest.mark.deep
def test_a_stopped_driver_wakes_up(
    folder: Path, api: FickleApi, rng: random.Random, request: pytest.FixtureRequest
) -> None:
    """SIGSTOP in the middle, another driver does the rest, SIGCONT: the old one repeats its
    chunk, and stops.
    """
    # In the last epoch it would find all that it has decided to be sent, and end well.
    api.held_from = (EPOCHS - 1) * SENDS_PER_EPOCH - 1
    old = start(folder, api)
    wait_for_requests(api, old, rng.randint(1, api.held_from), rng)
    assert old.pid is not None
    os.kill(old.pid, signal.SIGSTOP)
    api.released.set()
    try:
        assert finish(start(folder, api)) == 0
    finally:
        os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    judge(api, "keeps keys" in request.node.name, folder, 2)
