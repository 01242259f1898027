"""Checkpoints in a real S3 server, by Hadoop's own client (`make objects`): each query in processes
of its own, which die, are stopped, have a rival, or a network that breaks; a further life finishes.
What was written is read from the server's folder. See ``cell``.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from chaos.proxy import Proxy
from tests.kit.files.throttling import Throttling
from tests.kit.servers.versitygw import S3, s3
from tests.kit.serving import serving
from tests.kit.spark.more_jars import s3a_jars
from tests.kit.waiting import await_true
from tests.smoke.cell import BATCHES, Cell, Life, all_counts, play

BUCKET = "bucket"


class StoredQuery(Cell):
    """Its checkpoint and its output lie in the server."""

    def __init__(self, server: S3, folder: Path) -> None:
        super().__init__(folder)
        self.server, self.name = server, folder.name
        self.at(f"{self.name}/ck", f"{self.name}/out")
        self.give(*range(BATCHES))

    def at(self, checkpoint: str, out: str) -> None:
        """From here on the query is there."""
        self.checkpoint, self.out = self.path(checkpoint), self.path(out)
        self.given |= {"checkpoint": url(checkpoint), "out": f"s3://{BUCKET}/{out}"}

    def path(self, name: str) -> Path:
        """Of an object, or of what lies below a prefix."""
        return self.server.objects / BUCKET / name

    def begin(self, frame: str = "counted", server: S3 | None = None, **spec: Any) -> Life:
        server = server or self.server
        store = {
            "endpoint": server.endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "testsecret",
            "allow_http": True,
        }
        session = {"spark.driver.extraClassPath": ":".join(s3a_jars()), **server.hadoop()}
        return super().begin("counted", store=store, session=session, **spec)

    def command(self, *words: str, **variables: str) -> str:
        """The store is known by the environment."""
        return super().command(*words, **self.server.environment(), **variables)

    def check_counts(self, last: int = BATCHES, first: int = 0) -> None:
        self.check(all_counts(last, first))


def url(name: str) -> str:
    return f"s3a://{BUCKET}/{name}"


def killed(event: str) -> Callable[[StoredQuery], None]:
    def play(cell: StoredQuery) -> None:
        cell.dies(kill=f"{event}:2")
        cell.finishes()
        cell.check_counts()
        assert "OK" in cell.command("status", "--checkpoint", cell.given["checkpoint"])

    return play


def stopped(cell: StoredQuery) -> None:
    """Stopped with a savepoint in the store; a fork and the moved query go on from it."""
    name, to = cell.name, url(f"{cell.name}/savepoint")
    process = cell.begin(endless=True)
    cell.commits(2)
    old = cell.given["checkpoint"]
    cell.command("savepoint", "create", "--checkpoint", old, "--to", to, "--stop")
    process.finishes()
    done = cell.logged("commits") + 1
    cell.check_counts(done)
    cell.command("savepoint", "verify", to)
    assert "goes on" in cell.command("savepoint", "inspect", to)
    cell.give(BATCHES, BATCHES + 1)
    cell.command("savepoint", "restore", to, "--checkpoint", url(f"{name}/fork"))
    cell.at(f"{name}/fork", f"{name}/fork-out")
    cell.finishes()
    cell.check_counts(BATCHES + 2, first=done)
    for _ in range(2):
        where = ("--checkpoint", url(f"{name}/moved"), "--as", "same")
        cell.command("savepoint", "restore", to, *where)
    cell.at(f"{name}/moved", f"{name}/out")
    cell.finishes()
    cell.check_counts(BATCHES + 2)
    said = cell.life(checkpoint=old)
    assert said["code"] == "CHECKPOINT_RETIRED", said
    cell.command("savepoint", "delete", to)
    assert not cell.path(f"{name}/savepoint/manifest.json").exists()


def two_drivers(cell: StoredQuery) -> None:
    """The first is held behind its decision; a second one takes over; the first wakes up."""
    first = cell.begin(kill="EpochDecided:2/waits")
    await_true((cell.folder / "reached").exists, "the first is held")
    cell.finishes()
    (cell.folder / "go").touch()
    said = first.ends()
    assert "error" in said, said
    cell.check_counts()


def with_network(harm: Callable[[Proxy], None]) -> Callable[[StoredQuery], None]:
    def play(cell: StoredQuery) -> None:
        with Proxy(cell.server.port) as proxy:
            over = threading.Event()

            def breaks() -> None:
                while not over.wait(1.5):
                    harm(proxy)
                    time.sleep(0.2)
                    proxy.heal()

            thread = threading.Thread(target=breaks, name="breaks")
            process = cell.begin(server=cell.server.through(proxy.port))
            cell.commits(1)
            thread.start()
            try:
                said = process.ends()
            finally:
                over.set()
                thread.join()
            assert proxy.harm, "the faults had no effect"
        if "error" in said:
            print(f"    a life ended with {said['error']}: {said['text'][:200]}")
            cell.finishes()
        cell.check_counts()

    return play


def throttled(cell: StoredQuery) -> None:
    """Every fifth request is answered by 503 SlowDown."""
    with serving(Throttling(cell.server.port, every=5)) as proxy:
        cell.finishes(server=cell.server.through(proxy.server_port))
        assert proxy.refused > 10, proxy.refused
    cell.check_counts()


def credentials_end(cell: StoredQuery) -> None:
    """In the middle: the store refuses the key from some request on."""
    with serving(Throttling(cell.server.port, every=0)) as proxy:
        process = cell.begin(server=cell.server.through(proxy.server_port), endless=True)
        cell.commits(2)
        proxy.refusal = (400, "ExpiredToken")
        cell.give(BATCHES)
        said = process.ends()
    assert said["error"] == "Unavailable" and "ExpiredToken" in said["text"], said
    assert said["text"].count("\n") < 3, said
    cell.finishes()
    cell.check_counts(BATCHES + 1)


def no_bucket(cell: StoredQuery) -> None:
    said = cell.life(checkpoint="s3a://no-such-bucket/ck")
    refused_clearly(said, "STORE_BUCKET", "no-such-bucket")


def refusing(status: int, code: str, ours: str, word: str) -> Callable[[StoredQuery], None]:
    """The server refuses everything."""

    def play(cell: StoredQuery) -> None:
        with serving(Throttling(cell.server.port, every=0)) as proxy:
            proxy.refusal = (status, code)
            refused_clearly(cell.life(server=cell.server.through(proxy.server_port)), ours, word)

    return play


def refused_clearly(said: dict[str, Any], code: str, word: str) -> None:
    assert said["code"] == code, said
    assert word in said["text"] and said["text"].count("\n") < 3, said


EVENTS = ("EpochBegan", "EpochDecided", "EpochCompleted")
CELLS: dict[str, Callable[[StoredQuery], None]] = {
    **{f"killed-{event}": killed(event) for event in EVENTS},
    "stopped": stopped,
    "two-drivers": two_drivers,
    "requests-cut": with_network(Proxy.cut),
    "answers-lost": with_network(Proxy.lose_replies),
    "connections-reset": with_network(Proxy.reset),
    "throttled": throttled,
    "no-bucket": no_bucket,
    "credentials-end": credentials_end,
    "clock": refusing(403, "RequestTimeTooSkewed", "STORE_CLOCK", "clock"),
    "region": refusing(301, "PermanentRedirect", "STORE_REGION", "region"),
}


def main(*names: str) -> int:
    with tempfile.TemporaryDirectory() as folder, s3(Path(folder), BUCKET) as server:
        return play("a real S3 server", CELLS, partial(StoredQuery, server), names)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
