"""Kafka clusters, topics, groups and transactions, each fault made on a real broker. One without a fault,
which the doctor leaves as it was: ``test_rights.py``.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exactum.kafka import proof
from exactum.local import LocalKafka
from tests.conftest import TopicFactory
from tests.kit.doctor.diagnosis import Diagnosis, diagnosed
from tests.kit.kafka.broker import Broker

DEAD_WITHIN_S = 25.0


@pytest.fixture
def look(kafka: LocalKafka, tmp_path: Path) -> Callable[..., Diagnosis]:
    """Runs the doctor on this broker. ``output``: the topic of a sink."""

    def run(*options: str, output: str = "", more: str = "") -> Diagnosis:
        sink = f"exactum.KafkaSink({output!r}, bootstrap_servers={kafka.bootstrap_servers!r}{more})"
        return diagnosed(
            "--bootstrap-servers",
            kafka.bootstrap_servers,
            *options,
            sinks=sink if output else "",
            folder=tmp_path,
        )

    return run


def test_topics_that_are_missing(look: Callable[..., Diagnosis]) -> None:
    found = look("--topic", "no-input", output="no-output")
    assert found.status == 1
    assert found.has("error", "no-input (input)", "does not exist")
    assert found.has("error", "KafkaSink('no-output')", "does not exist")


def test_retention_and_compaction_against_the_longest_outage(
    topic: TopicFactory, look: Callable[..., Diagnosis]
) -> None:
    """What an outage of two hours would lose, and what it would not."""
    source = topic("in", config={"retention.ms": 3_600_000})
    target = topic("out", config={"cleanup.policy": "compact"})
    found = look("--topic", source, "--longest-outage", "2 h", output=target)
    assert found.has("error", f"{source} (input)", "keeps records for 60 min", "outage is 120 min")
    assert found.has("error", "KafkaSink", "may wait 15 min", "outage is 120 min")
    assert found.has("warning", f"{target} (output)", "cleanup.policy is compact")
    short = look("--topic", source, "--longest-outage", "10 min", output=target)
    assert short.all_is_well(), short.output
    assert short.has("ok", "may wait 15 min")
    assert short.has("warning", f"topic {target}", "Replication factor 1")


def test_an_output_against_the_longest_outage(
    topic: TopicFactory, look: Callable[..., Diagnosis]
) -> None:
    """Salvage takes care of timeouts as long as the log has the records."""
    found = look("--longest-outage", "2 h", output=topic("kept"))
    assert found.has("warning", "KafkaSink", "may wait 15 min")
    assert found.status == 0
    target = topic("out", config={"retention.ms": 3_600_000})
    found = look("--longest-outage", "2 h", output=target)
    assert found.has("error", "KafkaSink", "may wait 15 min")


def test_replicas_that_cannot_be_in_sync_and_records_that_may_be_cut(
    topic: TopicFactory, look: Callable[..., Diagnosis]
) -> None:
    """Records that come in the place of lost ones have their offsets: the query would skip them."""
    unclean = {"unclean.leader.election.enable": "true"}
    source, target = (
        topic("in", config=unclean),
        topic("out", config={"min.insync.replicas": 2, **unclean}),
    )
    found = look("--topic", source, output=target)
    assert found.has("error", f"{target} (output)", "min.insync.replicas is 2", "1 of 1 replicas")
    for name in (f"{source} (input)", f"{target} (output)"):
        assert found.has("warning", name, "unclean.leader.election.enable is on")


def test_a_timeout_above_what_the_broker_allows(
    topic: TopicFactory, look: Callable[..., Diagnosis]
) -> None:
    found = look(output=topic("out"), more=", transaction_timeout_ms=3_600_000")
    assert found.has("error", "KafkaSink", "3600000", "900000")


def test_a_group_with_members(
    kafka: LocalKafka, topic: TopicFactory, look: Callable[..., Diagnosis]
) -> None:
    """They alone may set its offsets."""
    source, group = topic("in"), "doctors-busy"
    with Broker(kafka).member(group, source):
        found = look("--topic", source, "--group", group)
    assert found.has("error", f"group {group}", "has 1 members")


# ---- nobody answers ----------------------------------------------------------------------------


def test_a_port_where_nobody_listens(tmp_path: Path) -> None:
    began_s = time.monotonic()
    found = diagnosed("--bootstrap-servers", "127.0.0.1:1", "--topic", "in")
    assert found.status == 1
    assert found.has("error", "Kafka 127.0.0.1:1", "no broker could be reached")
    assert time.monotonic() - began_s < DEAD_WITHIN_S


def test_a_host_that_takes_connections_and_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Told within seconds, whatever it is."""
    monkeypatch.setattr(proof, "PATIENCE", replace(proof.PATIENCE, connect_ms=1_000))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        began_s = time.monotonic()
        found = diagnosed("--bootstrap-servers", servers, "--topic", "in")
        took_s = time.monotonic() - began_s
    assert found.has("error", servers, "no broker answered")
    assert took_s < DEAD_WITHIN_S


def test_a_broker_that_advertises_what_nobody_reaches(
    kafka: LocalKafka, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classic of containers: the bootstrap server answers, and names an address of its own."""
    monkeypatch.setattr(proof, "connected", refuse)
    found = diagnosed("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic("in"))
    assert found.has("error", f"Broker 1 at {kafka.bootstrap_servers} cannot be reached")
    assert not found.has("ok", "Cluster")


def refuse(*of: object) -> None:
    raise ConnectionRefusedError("Connection refused")


def test_topics_without_a_cluster_are_refused() -> None:
    found = diagnosed("--topic", "in")
    assert found.status == 2
    assert "--bootstrap-servers" in found.output
