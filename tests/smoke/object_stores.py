"""Checkpoints in a real S3 server, by Hadoop's own client (`make objects`): each query in a process
of its own, which dies, is stopped, has a rival, or a network that breaks; a further life finishes.

    python object_stores.py                 every cell; ends with 1 where one is not exact
    python object_stores.py CELL ...        these

What was written is read from the server's folder, in a process without any client of S3.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chaos.proxy import Proxy
from tests.kit.files.throttling import throttling
from tests.kit.servers.versitygw import S3, s3
from tests.kit.waiting import await_true

BATCHES, ROWS, KEYS = 6, 40, 5
BUCKET = "bucket"
LIFE_TIMEOUT_S = 400


# ---- a life: the process that starts the query -----------------------------------------------


def live(spec: dict[str, Any]) -> None:
    """Start the query of ``spec`` and say how it ended, as one line of JSON."""
    import exactum
    from tests.kit.spark.more_jars import s3a_jars

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": ":".join(s3a_jars()),
        **spec["hadoop"],
    }
    spark = exactum.local_session("objects", master="local[2]", **settings)
    stream = spark.readStream.schema("id long, k string").option("maxFilesPerTrigger", 1)
    rows = stream.json(spec["input"])
    counts = rows.groupBy("k").count().selectExpr("count AS id", "k")
    once = exactum.exactly_once(
        exactum.FileSink(spec["out"], format="json", store=spec["store"]),
        on_event=Killer(spec.get("kill", ""), Path(spec["folder"])),
    )
    writer = counts.writeStream.outputMode("update")
    writer = (
        writer.trigger(processingTime="0 seconds")
        if spec.get("endless")
        else writer.trigger(availableNow=True)
    )
    said: dict[str, Any] = {}
    began_s = time.monotonic()
    try:
        query = once.start(writer, checkpoint=spec["checkpoint"], name="objects")
        query.awaitTermination()
        said["ended"] = True
    except Exception as error:
        said |= {
            "error": type(error).__name__,
            "code": getattr(error, "code", ""),
            "text": str(error),
        }
    print(json.dumps({**said, "took_s": round(time.monotonic() - began_s, 1)}), flush=True)


class Killer:
    """Ends the driver at ``event:batch``, or holds it there until ``go`` is in the folder."""

    def __init__(self, at: str, folder: Path) -> None:
        self.at, self.folder = at, folder

    def __call__(self, event: Any) -> None:
        at, _, how = self.at.partition("/")
        if f"{type(event).__name__}:{getattr(event, 'batch_id', '')}" != at:
            return
        if how != "waits":
            os.kill(os.getpid(), signal.SIGKILL)
        (self.folder / "reached").touch()
        await_true((self.folder / "go").exists, "it may go on")


# ---- the cells ---------------------------------------------------------------------------------


class Cell:
    """One query's lives, and what must be there afterwards."""

    def __init__(self, name: str, server: S3, folder: Path) -> None:
        self.server, self.folder, self.name = server, folder / name, name
        self.root = f"{name}/ck"
        self.out = f"{name}/out"
        (self.folder / "in").mkdir(parents=True)
        for batch in range(BATCHES):
            self.give(batch)

    def give(self, batch: int) -> None:
        ids = range(batch * ROWS, (batch + 1) * ROWS)
        text = "\n".join(json.dumps({"id": n, "k": str(n % KEYS)}) for n in ids)
        hidden = self.folder / "in" / f".{batch}"
        hidden.write_text(text)
        os.utime(hidden, (batch + 1, batch + 1))  # the order in which Spark reads the files
        hidden.rename(self.folder / "in" / f"{batch}.json")

    @property
    def checkpoint(self) -> str:
        return f"s3a://{BUCKET}/{self.root}"

    def begin(self, server: S3 | None = None, **spec: Any) -> subprocess.Popen[str]:
        server = server or self.server
        store = {
            "endpoint": server.endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "testsecret",
            "allow_http": True,
        }
        given = {
            "folder": str(self.folder),
            "input": str(self.folder / "in"),
            "checkpoint": self.checkpoint,
            "out": f"s3://{BUCKET}/{self.out}",
            "hadoop": server.hadoop(**spec.pop("settings", {})),
            "store": store,
            **spec,
        }
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, __file__, "--life", json.dumps(given)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """What the process said; {} where it died."""
        try:
            out, _ = process.communicate(timeout=LIFE_TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        return dict(json.loads(lines[-1])) if lines else {}

    def life(self, **spec: Any) -> dict[str, Any]:
        return self.end(self.begin(**spec))

    def finishes(self, **spec: Any) -> None:
        said = self.life(**spec)
        assert said.get("ended"), said

    def command(self, *words: str, status: int | None = 0) -> str:
        """Of exactum, in a process of its own; the store is known by the environment."""
        done = subprocess.run(
            [sys.executable, "-c", "from exactum.ops.cli import main; main()", *words],
            env={**os.environ, **self.server.environment()},
            capture_output=True,
            text=True,
            timeout=LIFE_TIMEOUT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        assert status is None or done.returncode == status, said
        return said

    def path(self, name: str) -> Path:
        """Of an object, or of what lies below a prefix."""
        return self.server.objects / BUCKET / name

    def logged(self, log: str) -> int:
        """The highest batch in one of Spark's logs."""
        return max(
            (int(p.name) for p in self.path(f"{self.root}/{log}").glob("[0-9]*")), default=-1
        )

    def commits(self, batches: int) -> None:
        """Wait until so many are."""
        await_true(lambda: self.logged("commits") + 1 >= batches, f"{batches} micro-batches")

    def rows(self) -> Counter[str]:
        paths = [p for p in self.path(self.out).rglob("*.json") if ".exactum" not in p.parts]
        found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return Counter(f"{row['k']}={row['id']}" for row in found)

    def check(self, last: int = BATCHES, first: int = 0) -> None:
        """The count of each key after each micro-batch: once."""
        expected: Counter[str] = Counter()
        for batch in range(first, last):
            seen = Counter(str(n % KEYS) for n in range((batch + 1) * ROWS))
            expected.update(f"{k}={n}" for k, n in seen.items())
        found = self.rows()
        assert found == expected, (
            f"{(expected - found).total()} lost, {(found - expected).total()} too many"
        )


def killed(event: str) -> Callable[[Cell], None]:
    def play(cell: Cell) -> None:
        assert cell.life(kill=f"{event}:2") == {}, "it was not killed"
        assert cell.logged("commits") < BATCHES - 1
        cell.finishes()
        cell.check()
        status = cell.command("status", "--checkpoint", cell.checkpoint)
        assert "OK" in status, status

    return play


def stopped(cell: Cell) -> None:
    """Stopped with a savepoint in the store; a fork and the moved query go on from it."""
    process = cell.begin(endless=True)
    cell.commits(2)
    to = f"s3a://{BUCKET}/{cell.name}/savepoint"
    cell.command("savepoint", "create", "--checkpoint", cell.checkpoint, "--to", to, "--stop")
    said = cell.end(process)
    assert said.get("ended"), said
    done = cell.logged("commits") + 1
    cell.check(done)
    cell.command("savepoint", "verify", to)
    assert "goes on" in cell.command("savepoint", "inspect", to)
    for batch in range(BATCHES, BATCHES + 2):
        cell.give(batch)
    old, fork, moved = cell.root, f"{cell.name}/fork", f"{cell.name}/moved"
    cell.command("savepoint", "restore", to, "--checkpoint", f"s3a://{BUCKET}/{fork}")
    cell.root, cell.out = fork, f"{cell.name}/fork-out"
    cell.finishes()
    cell.check(BATCHES + 2, first=done)
    for _ in range(2):
        cell.command(
            "savepoint", "restore", to, "--checkpoint", f"s3a://{BUCKET}/{moved}", "--as", "same"
        )
    cell.root, cell.out = moved, f"{cell.name}/out"
    cell.finishes()
    cell.check(BATCHES + 2)
    cell.root = old
    said = cell.life()
    assert said.get("code") == "CHECKPOINT_RETIRED", said
    cell.command("savepoint", "delete", to)
    assert not cell.path(f"{cell.name}/savepoint/manifest.json").exists()


def two_drivers(cell: Cell) -> None:
    """The first is held behind its decision; a second one takes over; the first wakes up."""
    first = cell.begin(kill="EpochDecided:2/waits")
    await_true((cell.folder / "reached").exists, "the first is held")
    cell.finishes()
    (cell.folder / "go").touch()
    said = cell.end(first)
    assert said.get("ended") is None, said
    cell.check()


def with_network(harm: Callable[[Proxy], None]) -> Callable[[Cell], None]:
    def play(cell: Cell) -> None:
        with Proxy(cell.server.port) as proxy:
            server, over = cell.server.through(proxy.port), threading.Event()

            def breaks() -> None:
                while not over.wait(1.5):
                    harm(proxy)
                    time.sleep(0.2)
                    proxy.heal()

            thread = threading.Thread(target=breaks, name="breaks")
            process = cell.begin(server)
            cell.commits(1)
            thread.start()
            try:
                said = cell.end(process)
            finally:
                over.set()
                thread.join()
            assert proxy.harm, "the faults had no effect"
        if not said.get("ended"):
            print(f"    a life ended with {said.get('error')}: {said.get('text', '')[:200]}")
            cell.finishes()
        cell.check()

    return play


def throttled(cell: Cell) -> None:
    """Every fifth request is answered by 503 SlowDown."""
    with throttling(cell.server.port, every=5) as proxy:
        cell.finishes(server=cell.server.through(proxy.port))
        assert proxy.refused > 10, proxy.refused
    cell.check()


def no_bucket(cell: Cell) -> None:
    said = cell.life(checkpoint="s3a://no-such-bucket/ck")
    refused_clearly(said, "STORE_BUCKET", "no-such-bucket")


def credentials_end(cell: Cell) -> None:
    """In the middle: the store refuses the key from some request on."""
    with throttling(cell.server.port, every=0) as proxy:
        process = cell.begin(cell.server.through(proxy.port))
        cell.commits(2)
        proxy.refusal = (400, "ExpiredToken")
        said = cell.end(process)
    text = str(said.get("text", ""))
    assert said.get("error") == "Unavailable" and "ExpiredToken" in text, said
    assert text.count("\n") < 3, text
    cell.finishes()
    cell.check()


def refused_clearly(said: dict[str, Any], code: str, *words: str) -> None:
    text = str(said.get("text", ""))
    assert said.get("code") == code, said
    assert all(word in text for word in words) and text.count("\n") < 3, text


def clock(cell: Cell) -> None:
    with throttling(cell.server.port, every=0) as proxy:
        proxy.refusal = (403, "RequestTimeTooSkewed")
        refused_clearly(cell.life(server=cell.server.through(proxy.port)), "STORE_CLOCK", "clock")


def region(cell: Cell) -> None:
    with throttling(cell.server.port, every=0) as proxy:
        proxy.refusal = (301, "PermanentRedirect")
        refused_clearly(cell.life(server=cell.server.through(proxy.port)), "STORE_REGION", "region")


EVENTS = ("EpochBegan", "EpochDecided", "EpochCompleted")
CELLS: dict[str, Callable[[Cell], None]] = {
    **{f"killed-{event}": killed(event) for event in EVENTS},
    "stopped": stopped,
    "two-drivers": two_drivers,
    "requests-cut": with_network(Proxy.cut),
    "answers-lost": with_network(Proxy.lose_replies),
    "connections-reset": with_network(Proxy.reset),
    "throttled": throttled,
    "no-bucket": no_bucket,
    "credentials-end": credentials_end,
    "clock": clock,
    "region": region,
}


@contextlib.contextmanager
def place() -> Iterator[Path]:
    kept = os.environ.get("EXACTUM_OBJECTS_FOLDER")
    if kept:
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="exactum-objects-") as folder:
        yield Path(folder)


def main(names: list[str]) -> int:
    failed = 0
    with place() as folder, s3(folder / "server", BUCKET) as server:
        for name in names or list(CELLS):
            began_s = time.monotonic()
            cell = Cell(name, server, folder)
            try:
                CELLS[name](cell)
                result = "exact"
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                result = f"FAILED: {error!r}; see {cell.folder / 'log'}"
                sys.stdout.write((cell.folder / "log").read_text()[-3000:])
            print(f"{name}: {result} ({time.monotonic() - began_s:.0f} s)", flush=True)
    print(f"{len(names or CELLS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--life"]:
        live(json.loads(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
