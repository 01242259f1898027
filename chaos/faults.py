"""What each fault does to a cell whose query is held at its point. Each lets the query go, if
it still lives.
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

import psycopg
from confluent_kafka import Producer

from chaos.servers import Driver, HarnessFailure, LedKafka, full
from exactum.checkpoint.layout import DECISIONS
from tests.kit.crash import oracle
from tests.kit.crash.oracle import OracleFailure

if TYPE_CHECKING:
    from chaos.cell_run import CellRun

NETWORK_S = 2.5
"""How long a network stays broken: longer than a request takes, shorter than any timeout."""
DELAY_S = 0.4
DOWN_S = 0.5
"""How long a killed server stays down after the query was let go."""
PAUSE_S = 3.0
EXPIRY_TIMEOUT_S = 60.0
DISK_S = 4.0
CLOCK_S = 3_600


def play(cell_run: CellRun) -> None:
    """The fault of the cell."""
    if cell_run.lost_decision:
        cell_run.forgiven.add("Python")  # the harness raised it
        return
    PLAYS[cell_run.fault.name](cell_run)


# ---- kills ---------------------------------------------------------------------------------------


def kill_driver(cell_run: CellRun) -> None:
    driver_of(cell_run).kill()
    cell_run.query_oracle.check_so_far()


def kill_worker(cell_run: CellRun) -> None:
    """The worker that is held, or all of them when the driver is."""
    driver = driver_of(cell_run)
    if cell_run.point.where == "task":
        line = (driver.folder / "faults").read_text().splitlines()[-1]
        os.kill(int(line.split()[-1]), signal.SIGKILL)
    else:
        cell_run.notes.append(f"{driver.kill_workers()} workers killed")
    cell_run.let_go()


def kill_server(cell_run: CellRun) -> None:
    server = cell_run.servers.server(cell_run.server)
    server.kill()
    cell_run.let_go()
    time.sleep(DOWN_S)
    server.restart()
    if isinstance(server, LedKafka):
        cell_run.forgiven.add("Spark")  # its own source, or its own planning, gave up


# ---- pauses and rivals ---------------------------------------------------------------------------


def pause(cell_run: CellRun) -> None:
    """The whole process tree stands still until everything that has a timeout is over it."""
    driver = driver_of(cell_run)
    driver.pause()
    try:
        time.sleep(PAUSE_S)
        if "kafka" in cell_run.family.kinds:
            await_none_open(cell_run)
        ended = end_sessions(cell_run)
    finally:
        driver.resume()
    cell_run.notes.append(
        f"{ended} database sessions ended meanwhile"
        if cell_run.family.servers != ("kafka",)
        else "timed out"
    )
    cell_run.let_go()


def second_copy(cell_run: CellRun) -> None:
    """Another driver process starts the same query while the first one is held, and runs it to the
    end.
    """
    cell_run.forgiven |= {"Fenced", "Spark"}
    other = cell_run.servers.driver(1)
    for _ in range(3):
        if cell_run.start(other).outcome == "finished":
            break
    cell_run.query_oracle.check_so_far()
    cell_run.let_go()
    first = driver_of(cell_run).ended(cell_run.held)
    if first.outcome == "finished":
        cell_run.notes.append("the first had nothing left to do")
    elif first.error != "Fenced" and first.error:
        cell_run.notes.append(f"the first stopped with {first.error}")


def foreign_init(cell_run: CellRun) -> None:
    """Somebody else's producer takes over the id of our open transaction."""
    names = oracle.ongoing(cell_run.query_oracle.bootstrap_servers, cell_run.query_oracle.query_id)
    if not names:
        raise HarnessFailure("no transaction is open")
    name = cell_run.chance.choice(names)
    producer = Producer(
        {
            "bootstrap.servers": cell_run.query_oracle.bootstrap_servers,
            "transactional.id": name,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    cell_run.let_go()


# ---- networks ------------------------------------------------------------------------------------


def network(break_it: Callable[[CellRun], None]) -> Callable[[CellRun], None]:
    """A fault of the network between the driver, with its workers, and one server."""

    def play_network(cell_run: CellRun) -> None:
        if cell_run.server == "kafka":
            cell_run.forgiven.add("Spark")
        proxy = cell_run.servers.proxies[cell_run.server]
        before = proxy.harm
        break_it(cell_run)
        cell_run.let_go()
        deadline = time.monotonic() + NETWORK_S
        while time.monotonic() < deadline and cell_run.held.result is None:
            time.sleep(0.02)
        proxy.heal()
        cell_run.notes.append(
            f"{cell_run.server}: {proxy.harm - before} pieces or connections met it"
        )

    return play_network


# ---- disk and checkpoint -------------------------------------------------------------------------


def disk_full(cell_run: CellRun) -> None:
    """No file grows until the query has ended, or some seconds are over."""
    cell_run.forgiven.add("Spark")
    with full(cell_run.servers.disk()):
        cell_run.let_go()
        deadline = time.monotonic() + DISK_S
        while time.monotonic() < deadline and cell_run.held.result is None:
            time.sleep(0.02)


def damage(how: str) -> Callable[[CellRun], None]:
    """Kill the driver and damage its checkpoint. A refusal is right; then the backup is put
    back.
    """

    def play_damage(cell_run: CellRun) -> None:
        driver_of(cell_run).kill()
        folder = cell_run.query_oracle.checkpoint.folder
        backup = cell_run.folder / "backup"
        shutil.copytree(folder, backup)
        path = harmed(cell_run, folder)
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
        cell_run.notes.append(str(path.relative_to(folder)))
        # UnknownFailure: what Spark's tasks say of state whose ids stood in a commit log.
        cell_run.forgiven |= {"CheckpointRefused", "InvariantBroken", "Spark", "UnknownFailure"}
        result = cell_run.start()
        cell_run.notes.append(
            "carried on" if result.outcome == "finished" else f"refused ({result.kind})"
        )
        if result.outcome == "finished":
            shutil.rmtree(backup)  # what waits in it is not left over
            cell_run.query_oracle.check_exact()
            return
        # As an operator would: the whole folder back from the backup.
        shutil.rmtree(folder)
        backup.rename(folder)
        cell_run.query_oracle.check_so_far()

    return play_damage


def harmed(cell_run: CellRun, folder: Path) -> Path:
    """The newest file of Spark's logs or of the decision log: what a power failure would hit."""
    logs = [folder / "offsets", folder / "commits", folder / DECISIONS]
    newest = [
        max(log.glob("[0-9]*"), key=lambda p: p.stat().st_mtime_ns)
        for log in logs
        if any(log.glob("[0-9]*"))
    ]
    if not newest:
        raise HarnessFailure("the checkpoint has no file yet")
    return cell_run.chance.choice(newest)


def checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


# ---- expiry and clock ----------------------------------------------------------------------------


def expired(cell_run: CellRun) -> None:
    await_none_open(cell_run)
    cell_run.let_go()


def ids_expired(cell_run: CellRun) -> None:
    """On a broker that forgets ids a second after their last transaction."""
    driver_of(cell_run).kill()
    deadline = time.monotonic() + EXPIRY_TIMEOUT_S
    while known_ids(cell_run):
        if time.monotonic() > deadline:
            raise HarnessFailure(f"the broker still knows {known_ids(cell_run)}")
        time.sleep(0.1)


def clock(cell_run: CellRun) -> None:
    """Forth or back by an hour, for the driver with its JVM and workers."""
    if cell_run.servers.clock is None:
        raise HarnessFailure("these servers have no clock of its own")
    hours = cell_run.chance.choice([-1, 1])
    cell_run.servers.clock.move(hours * CLOCK_S)
    cell_run.notes.append(f"{hours:+d} h")
    cell_run.let_go()


# ---- small steps ---------------------------------------------------------------------------------


def driver_of(cell_run: CellRun) -> Driver:
    if cell_run.driver is None:
        raise HarnessFailure("no driver plays")
    return cell_run.driver


def await_none_open(cell_run: CellRun) -> None:
    deadline = time.monotonic() + EXPIRY_TIMEOUT_S
    while names := oracle.ongoing(
        cell_run.query_oracle.bootstrap_servers, cell_run.query_oracle.query_id
    ):
        if time.monotonic() > deadline:
            raise OracleFailure(f"still open after {EXPIRY_TIMEOUT_S:.0f} s: {names}")
        time.sleep(0.1)


def known_ids(cell_run: CellRun) -> list[str]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=cell_run.query_oracle.bootstrap_servers)
    try:
        listed = admin.list_transactions()
    finally:
        admin.close()
    return [
        t.transactional_id
        for each in listed.values()
        for t in each
        if cell_run.query_oracle.query_id in t.transactional_id
    ]


def end_sessions(cell_run: CellRun) -> int:
    """End every session of the query in its databases, as the servers' own timeouts would; returns
    how many.
    """
    ended = 0
    database = cell_run.query_oracle.targets.database
    if "postgres" in cell_run.family.servers:
        with psycopg.connect(cell_run.servers.postgres.url, autocommit=True) as connection:
            asked = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database],
            )
            ended += len(asked.fetchall())
    if "mysql" in cell_run.family.servers:
        mysql = cell_run.query_oracle.targets.mysql
        sessions = f"SELECT id FROM information_schema.processlist WHERE db = '{database}'"
        for (number,) in mysql.ask(sessions):
            mysql.ask(f"KILL {number}")
            ended += 1
    return ended


PLAYS: dict[str, Callable[[CellRun], None]] = {
    "kill-driver": kill_driver,
    "kill-worker": kill_worker,
    "kill-broker": kill_server,
    "kill-postgres": kill_server,
    "kill-mariadb": kill_server,
    "pause": pause,
    "second-copy": second_copy,
    "foreign-init": foreign_init,
    "reply-lost": network(
        lambda cell_run: cell_run.servers.proxies[cell_run.server].lose_replies()
    ),
    "delayed": network(lambda cell_run: cell_run.servers.proxies[cell_run.server].delay(DELAY_S)),
    "reset": network(lambda cell_run: cell_run.servers.proxies[cell_run.server].reset()),
    "cut": network(lambda cell_run: cell_run.servers.proxies[cell_run.server].cut()),
    "half-open": network(lambda cell_run: cell_run.servers.proxies[cell_run.server].half_open()),
    "disk-full": disk_full,
    "truncated": damage("truncated"),
    "missing": damage("missing"),
    "other-query": damage("other-query"),
    "expired": expired,
    "ids-expired": ids_expired,
    "clock": clock,
}
