"""The faults of the soak. Each begins now and is over when ``healing`` closes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from tests.kit.crash import oracle

if TYPE_CHECKING:
    from chaos.soak import Soak
    from chaos.soak_supervisor import Supervisor

Healing = contextlib.ExitStack
Fault = Callable[["Soak", "Supervisor", Healing], None]


def kill_driver(soak: Soak, query: Supervisor, healing: Healing) -> None:
    soak.timeline.note(f"  SIGKILL of {query.name}'s driver")
    query.driver.kill()


def kill_workers(soak: Soak, query: Supervisor, healing: Healing) -> None:
    soak.timeline.note(f"  SIGKILL of {query.driver.kill_workers()} workers of {query.name}")


def pause_driver(soak: Soak, query: Supervisor, healing: Healing) -> None:
    driver = query.driver
    soak.timeline.note(f"  SIGSTOP of {query.name}")
    driver.pause()
    healing.callback(driver.resume)


def kill_server(name: str) -> Fault:
    def kill(soak: Soak, query: Supervisor, healing: Healing) -> None:
        server = soak.servers.server(name)
        soak.timeline.note(f"  SIGKILL of {name}")
        server.kill()
        server.restart()
        soak.timeline.note(f"  {name} is back")

    return kill


def pause_server(name: str) -> Fault:
    def stop(soak: Soak, query: Supervisor, healing: Healing) -> None:
        server = soak.servers.server(name)
        soak.timeline.note(f"  SIGSTOP of {name}")
        server.pause()
        healing.callback(server.resume)

    return stop


def network(name: str, how: str) -> Fault:
    def break_it(soak: Soak, query: Supervisor, healing: Healing) -> None:
        proxy = soak.servers.proxies[name]
        soak.timeline.note(f"  network to {name}: {how}")
        healing.callback(proxy.heal)
        if how == "delay":
            proxy.delay(soak.chance.uniform(0.05, 0.5))
        else:
            getattr(proxy, how)()

    return break_it


def second_copy(soak: Soak, query: Supervisor, healing: Healing) -> None:
    """Another driver process runs the same query for this round; the two fence each other."""
    if soak.copy is not None or not soak.understudy().ready:
        soak.timeline.note("  no second copy: its process is busy or at its start")
        return
    spec = query.spec(drain=False)
    soak.timeline.note(f"  a second copy of {query.name}")
    soak.understudy().begin(spec)
    soak.copy = (query, spec)
    healing.callback(spec.stop)


def foreign_init(soak: Soak, query: Supervisor, healing: Healing) -> None:
    with contextlib.suppress(
        KafkaException, KafkaError, OSError
    ):  # the broker may be away at the moment
        names = oracle.ongoing(soak.servers.kafka.direct, query.query_oracle.query_id)
        if names:
            settings = {
                "bootstrap.servers": soak.servers.kafka.direct,
                "transactional.id": names[0],
                "log_level": 0,
            }
            Producer(settings).init_transactions(5)
            soak.timeline.note(f"  a foreign init_transactions with an id of {query.name}")


FAULTS: dict[str, Fault] = {
    "kill-driver": kill_driver,
    "kill-workers": kill_workers,
    "pause-driver": pause_driver,
    "kill-broker": kill_server("kafka"),
    "kill-postgres": kill_server("postgres"),
    "pause-broker": pause_server("kafka"),
    "pause-postgres": pause_server("postgres"),
    "second-copy": second_copy,
    "foreign-init": foreign_init,
    **{
        f"{how.replace('_', '-')}-{name}": network(name, how)
        for name in ("kafka", "postgres")
        for how in ("reset", "cut", "half_open", "lose_replies", "delay")
    },
}
