"""What each fault does to a scene whose query is held at its point. Each lets the query go, if it
still lives.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import oracle
import psycopg
from confluent_kafka import Producer

from chaos.books import BooksFailure
from chaos.stage import Driver, HarnessFailure, LedKafka, full

if TYPE_CHECKING:
    from chaos.scene import Scene

NETWORK_S = 2.5
"""How long a network stays broken: longer than a request takes, shorter than anybody's patience."""
DELAY_S = 0.4
DOWN_S = 0.5
"""How long a killed server stays down after the query was let go."""
PAUSE_S = 3.0
EXPIRY_TIMEOUT_S = 60.0
DISK_S = 4.0
CLOCK_S = 3_600


def play(scene: Scene) -> None:
    """The scene's fault."""
    if scene.lost_decision:
        scene.forgiven.add("Python")  # the harness raised it
        return
    PLAYS[scene.fault.name](scene)


# ---- kills ---------------------------------------------------------------------------------------


def kill_driver(scene: Scene) -> None:
    driver_of(scene).kill()
    scene.books.check_so_far()


def kill_worker(scene: Scene) -> None:
    """The worker that is held, or all of them when the driver is."""
    driver = driver_of(scene)
    if scene.point.where == "task":
        line = (driver.folder / "faults").read_text().splitlines()[-1]
        os.kill(int(line.split()[-1]), signal.SIGKILL)
    else:
        scene.notes.append(f"{driver.kill_workers()} workers killed")
    scene.let_go()


def kill_server(scene: Scene) -> None:
    server = scene.stage.server(scene.server)
    server.kill()
    scene.let_go()
    time.sleep(DOWN_S)
    server.restart()
    if isinstance(server, LedKafka):
        scene.forgiven.add("Spark")  # its own source, or its own planning, gave up


# ---- pauses and rivals ---------------------------------------------------------------------------


def pause(scene: Scene) -> None:
    """The whole process tree stands still until everything that has a timeout is over it."""
    driver = driver_of(scene)
    driver.pause()
    try:
        time.sleep(PAUSE_S)
        if "kafka" in scene.family.kinds:
            await_none_open(scene)
        ended = end_sessions(scene)
    finally:
        driver.resume()
    scene.notes.append(
        f"{ended} database sessions ended meanwhile"
        if scene.family.servers != ("kafka",)
        else "timed out"
    )
    scene.let_go()


def second_copy(scene: Scene) -> None:
    """Another driver process starts the same query while the first one is held, and runs it to the
    end.
    """
    scene.forgiven |= {"Fenced", "Spark"}
    other = scene.stage.driver(1)
    for _ in range(3):
        if scene.start(other).outcome == "finished":
            break
    scene.books.check_so_far()
    scene.let_go()
    first = driver_of(scene).ended(scene.act)
    if first.outcome == "finished":
        scene.notes.append("the first had nothing left to do")
    elif first.error != "Fenced" and first.error:
        scene.notes.append(f"the first stopped with {first.error}")


def foreign_init(scene: Scene) -> None:
    """Somebody else's producer takes over the id of our open transaction."""
    names = oracle.ongoing(scene.books.servers, scene.books.query_id)
    if not names:
        raise HarnessFailure("no transaction is open")
    name = scene.chance.choice(names)
    producer = Producer(
        {"bootstrap.servers": scene.books.servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    scene.let_go()


# ---- networks ------------------------------------------------------------------------------------


def network(break_it: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """A fault of the network between the driver, with its workers, and one server."""

    def play_network(scene: Scene) -> None:
        if scene.server == "kafka":
            scene.forgiven.add("Spark")
        proxy = scene.stage.proxies[scene.server]
        before = proxy.harm
        break_it(scene)
        scene.let_go()
        deadline = time.monotonic() + NETWORK_S
        while time.monotonic() < deadline and scene.act.result is None:
            time.sleep(0.02)
        proxy.heal()
        scene.notes.append(f"{scene.server}: {proxy.harm - before} pieces or connections met it")

    return play_network


# ---- disk and checkpoint -------------------------------------------------------------------------


def disk_full(scene: Scene) -> None:
    """No file grows until the query has ended, or some seconds are over."""
    scene.forgiven.add("Spark")
    with full(scene.stage.disk()):
        scene.let_go()
        deadline = time.monotonic() + DISK_S
        while time.monotonic() < deadline and scene.act.result is None:
            time.sleep(0.02)


def damage(how: str) -> Callable[[Scene], None]:
    """Kill the driver and damage its checkpoint. A refusal is right; then the backup is put
    back.
    """

    def play_damage(scene: Scene) -> None:
        driver_of(scene).kill()
        folder = scene.books.checkpoint.folder
        backup = scene.folder / "backup"
        shutil.copytree(folder, backup)
        path = harmed(scene, folder)
        if how == "truncated":
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)
        elif how == "missing":
            path.unlink()
        else:
            (folder / "metadata").write_text(
                json.dumps({"id": "00000000-0000-4000-8000-000000000000"})
            )
            path = folder / "metadata"
        checksum(path).unlink(missing_ok=True)
        scene.notes.append(str(path.relative_to(folder)))
        scene.forgiven |= {"CheckpointRefused", "InvariantBroken", "Spark"}
        result = scene.start()
        scene.notes.append(
            "carried on" if result.outcome == "finished" else f"refused ({result.kind})"
        )
        if result.outcome == "finished":
            scene.books.check_exact()
            return
        # As an operator would: the whole folder back from the backup.
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        scene.books.check_so_far()

    return play_damage


def harmed(scene: Scene, folder: Path) -> Path:
    """The newest file of Spark's logs or of the decision log: what a power failure would hit."""
    logs = [folder / "offsets", folder / "commits", folder / "exactum" / "decisions"]
    newest = [
        max(log.glob("[0-9]*"), key=lambda p: p.stat().st_mtime_ns)
        for log in logs
        if any(log.glob("[0-9]*"))
    ]
    if not newest:
        raise HarnessFailure("the checkpoint has no file yet")
    return scene.chance.choice(newest)


def checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


# ---- expiry and clock ----------------------------------------------------------------------------


def expired(scene: Scene) -> None:
    await_none_open(scene)
    scene.let_go()


def ids_expired(scene: Scene) -> None:
    """On a broker that forgets ids a second after their last transaction."""
    driver_of(scene).kill()
    deadline = time.monotonic() + EXPIRY_TIMEOUT_S
    while known_ids(scene):
        if time.monotonic() > deadline:
            raise HarnessFailure(f"the broker still knows {known_ids(scene)}")
        time.sleep(0.1)


def clock(scene: Scene) -> None:
    """Forth or back by an hour, for the driver with its JVM and workers."""
    if scene.stage.clock is None:
        raise HarnessFailure("this stage has no clock of its own")
    hours = scene.chance.choice([-1, 1])
    scene.stage.clock.move(hours * CLOCK_S)
    scene.notes.append(f"{hours:+d} h")
    scene.let_go()


# ---- small steps ---------------------------------------------------------------------------------


def driver_of(scene: Scene) -> Driver:
    if scene.driver is None:
        raise HarnessFailure("no driver plays")
    return scene.driver


def await_none_open(scene: Scene) -> None:
    deadline = time.monotonic() + EXPIRY_TIMEOUT_S
    while names := oracle.ongoing(scene.books.servers, scene.books.query_id):
        if time.monotonic() > deadline:
            raise BooksFailure(f"still open after {EXPIRY_TIMEOUT_S:.0f} s: {names}")
        time.sleep(0.1)


def known_ids(scene: Scene) -> list[str]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=scene.books.servers)
    try:
        listed = admin.list_transactions()
    finally:
        admin.close()
    return [
        t.transactional_id
        for each in listed.values()
        for t in each
        if scene.books.query_id in t.transactional_id
    ]


def end_sessions(scene: Scene) -> int:
    """End every session of the query in its databases, as the servers' own timeouts would; returns
    how many.
    """
    ended = 0
    database = scene.books.targets.database
    if "postgres" in scene.family.servers:
        with psycopg.connect(scene.stage.postgres.url, autocommit=True) as connection:
            asked = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database],
            )
            ended += len(asked.fetchall())
    if "mysql" in scene.family.servers:
        with scene.books.targets.mysql_connection() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s", [database]
            )
            for (number,) in cursor.fetchall():
                cursor.execute(f"KILL {number}")
                ended += 1
    return ended


PLAYS: dict[str, Callable[[Scene], None]] = {
    "kill-driver": kill_driver,
    "kill-worker": kill_worker,
    "kill-broker": kill_server,
    "kill-postgres": kill_server,
    "kill-mariadb": kill_server,
    "pause": pause,
    "second-copy": second_copy,
    "foreign-init": foreign_init,
    "reply-lost": network(lambda scene: scene.stage.proxies[scene.server].lose_replies()),
    "delayed": network(lambda scene: scene.stage.proxies[scene.server].delay(DELAY_S)),
    "reset": network(lambda scene: scene.stage.proxies[scene.server].reset()),
    "cut": network(lambda scene: scene.stage.proxies[scene.server].cut()),
    "half-open": network(lambda scene: scene.stage.proxies[scene.server].half_open()),
    "disk-full": disk_full,
    "truncated": damage("truncated"),
    "missing": damage("missing"),
    "other-query": damage("other-query"),
    "expired": expired,
    "ids-expired": ids_expired,
    "clock": clock,
}
