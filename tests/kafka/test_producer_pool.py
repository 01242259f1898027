"""Producers made ahead of need: a task takes one that is ready, where there is one."""

from __future__ import annotations

import ctypes
import gc
import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactum.errors import InvariantBroken, SettingRefused
from exactum.kafka import librdkafka, messages, producer_pool, writer
from exactum.kafka.failure import DeliveryError
from exactum.kafka.messages import produce
from exactum.kafka.producer import Producer
from exactum.kafka.producer_pool import ProcessPools, ProducerPlan, ProducerPool, initialised
from exactum.kafka.transaction import KafkaScope
from exactum.protocol.model import new_incarnation
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame
from tests.kit.waiting import WAIT_MAX_S


@pytest.fixture
def plan(broker: Broker) -> ProducerPlan:
    scope = KafkaScope("query", "out", "test")
    return ProducerPlan(broker.servers, (), scope, new_incarnation(), 60_000, broker.topic("out"))


def test_a_ready_one_is_taken_first(plan: ProducerPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may take its time with one of them; whoever needs one does not wait for just
    that one.
    """
    initialised, goes_on = producer_pool.initialised, threading.Event()

    def second_is_slow(plan: ProducerPlan, transactional_id: str, *rest: Any) -> Producer:
        if transactional_id.endswith("/1"):
            assert goes_on.wait(WAIT_MAX_S)
        return initialised(plan, transactional_id, *rest)

    monkeypatch.setattr(producer_pool, "initialised", second_is_slow)
    pool = ProducerPool(plan)
    try:
        used = pool.take(1)
        pool.initialise_ahead()  # the slow one
        with pool._lock:
            ready = pool._submit()
            pool._ahead.append(ready)
        assert ready.result(WAIT_MAX_S).transactional_id.endswith("/2")
        taken = pool.take(1)
        assert taken.transactional_id.endswith("/2")
        assert used.transactional_id.endswith("/0")
    finally:
        goes_on.set()
    pool.let_go(taken)
    pool.let_go(used)
    pool.close()


def events(producer: Producer) -> int:
    """How many wait for somebody who takes them."""
    length = librdkafka.library().rd_kafka_queue_length
    length.restype, length.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    return int(length(producer._queue))


def test_an_idle_producer_piles_up_nothing(plan: ProducerPlan) -> None:
    """One made ahead may wait for an hour, and nobody polls it."""
    producer = initialised(plan, "idle")
    try:
        assert events(producer) == 0
        time.sleep(2)
        assert events(producer) == 0
    finally:
        producer.destroy()


def test_each_has_an_epoch_of_its_own_and_knows_it_at_once(plan: ProducerPlan) -> None:
    identities = []
    for _ in range(3):
        producer = initialised(plan, "several")
        identities.append(producer.identity)
        producer.destroy()
    (producer_id,) = {identity[0] for identity in identities}
    assert producer_id >= 0
    assert [identity[1] for identity in identities] == [0, 1, 2]


@pytest.mark.parametrize("settings", [(("debug", "broker"),), (("log_level", "3"),)], ids=str)
def test_whatever_the_user_logs(
    plan: ProducerPlan, settings: producer_pool.Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "exactum.kafka")
    producer = initialised(replace(plan, settings=settings), "logged")
    try:
        assert producer.identity[0] >= 0
        producer.poll(0)
        assert ("Connected" in caplog.text) == (settings[0][0] == "debug")
    finally:
        producer.destroy()


def test_a_librdkafka_that_logs_something_else(
    plan: ProducerPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactum.kafka.producer._ACQUIRED", re.compile(b"Got PID"))
    with raised(SettingRefused, "KAFKA_LIBRARY", "librdkafka 2.", "producer id"):
        initialised(plan, "other")


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessPools]:
    """A process that has no pools yet."""
    pools = ProcessPools()
    monkeypatch.setattr(writer, "process_pools", pools)
    yield pools
    for pool in pools._pools.values():
        pool.close()


def plans(broker: Broker, count: int) -> list[ProducerPlan]:
    scopes = [KafkaScope("query", f"out-{number}", "test") for number in range(count)]
    return [ProducerPlan(broker.servers, (), scope, new_incarnation(), 60_000) for scope in scopes]


class User:
    """Some writer."""


def test_pools_go_when_nobody_uses_them(
    broker: Broker, pools: ProcessPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those idle for longest, of more than a few, also where a user was forgotten; and the next
    task of one that was idle for long gets a new one.
    """
    monkeypatch.setattr(producer_pool, "POOLS_IDLE_MAX", 1)
    first, other, later = plans(broker, 3)
    users = {plan: User() for plan in (first, other, later)}
    was = {plan: pools.pool_of(plan, user) for plan, user in users.items()}
    was[first].leave(users[first])
    del users[other]
    gc.collect()
    pools.pool_of(later, users[later])
    assert list(pools._pools) == [first, other, later]
    monkeypatch.setattr(producer_pool, "POOL_IDLE_MIN_S", -1.0)
    pools.pool_of(later, users[later])
    assert list(pools._pools) == [first, later]
    monkeypatch.setattr(producer_pool, "POOL_IDLE_MAX_S", -1.0)
    assert pools.pool_of(first, User()) is not was[first]
    assert pools.pool_of(later, users[later]) is was[later]


def test_a_producer_that_was_let_go_is_not_used(plan: ProducerPlan) -> None:
    """librdkafka would crash, and the process with it."""
    producer = initialised(plan, "gone")
    producer.begin_transaction()
    assert plan.topic is not None
    produce(producer, frame([b"v"]), plan.topic, timeout_ms=1_000)
    producer.destroy()
    producer.destroy()
    with_headers = frame([b"v"], headers=pa.array([[]], messages.HEADERS))
    for use in (
        lambda: produce(producer, frame([b"v"]), plan.topic, timeout_ms=1_000),
        lambda: produce(producer, with_headers, plan.topic, timeout_ms=1_000),
        lambda: producer.flush(1_000),
        lambda: producer.poll(0),
        producer.begin_transaction,
        lambda: producer.learn(plan.topic, 1_000),
    ):
        with raised(InvariantBroken, "producer"):
            use()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 600, "a b", "\ud800"])
def test_a_producer_takes_no_name_that_c_reads_otherwise(plan: ProducerPlan, name: str) -> None:
    """Whoever calls it: the name would be cut at a NUL, and for an endless one there is no topic
    at all.
    """
    producer = Producer(plan.producer_settings(None))
    with_headers = frame([b"v"], headers=pa.array([[]], messages.HEADERS))
    try:
        with pytest.raises(DeliveryError) as refused:
            produce(producer, with_headers, name, timeout_ms=1_000)
        assert refused.value.name == "TOPIC_EXCEPTION"
        with pytest.raises(DeliveryError) as refused:
            producer.produce_array(name, np.zeros(1, dtype=librdkafka.MESSAGE), timeout_ms=1_000)
        assert refused.value.name == "TOPIC_EXCEPTION"
        with pytest.raises(InvariantBroken):
            producer.produce_array(
                "t", np.zeros(4, dtype=librdkafka.MESSAGE)[::2], timeout_ms=1_000
            )
    finally:
        producer.destroy()
