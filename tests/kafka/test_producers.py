"""Producers made ahead of need: a task takes one that is ready, where there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from exactum.kafka import producers
from exactum.kafka.librdkafka import Producer
from exactum.kafka.producers import ProducerPlan, ProducerPool
from exactum.kafka.transactional_id import TransactionScope
from exactum.local import LocalKafka
from exactum.protocol.model import new_incarnation

pytestmark = pytest.mark.broker

WAIT_S = 30


@pytest.fixture
def plan(kafka: LocalKafka, topic: Callable[..., str]) -> ProducerPlan:
    scope = TransactionScope("test", "query", "out")
    return ProducerPlan(kafka.bootstrap_servers, (), scope, new_incarnation(), 60_000, topic("out"))


def test_a_ready_one_is_taken_first(plan: ProducerPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may take its time with one of them; whoever needs one does not wait for just that one."""
    initialised, goes_on = producers.initialised, threading.Event()

    def second_is_slow(plan: ProducerPlan, transactional_id: str, *rest: Any) -> Producer:
        if transactional_id.endswith("/1"):
            assert goes_on.wait(WAIT_S)
        return initialised(plan, transactional_id, *rest)

    monkeypatch.setattr(producers, "initialised", second_is_slow)
    pool = ProducerPool(plan)
    try:
        used = pool.take(1)
        pool.prepare_ahead()  # the slow one
        with pool._lock:
            ready = pool._submit()
            pool._ahead.append(ready)
        assert ready.result(WAIT_S).transactional_id.endswith("/2")
        taken = pool.take(1)
        assert taken.transactional_id.endswith("/2")
        assert used.transactional_id.endswith("/0")
    finally:
        goes_on.set()
    pool.let_go(taken)
    pool.let_go(used)
    pool.close()
