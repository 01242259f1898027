"""Producers made ahead of need: a task takes one that is ready, where there is one."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
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
from exactum.protocol.sink import TaskName, WriteOrder
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame, opened
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

WAIT_S = WAIT_MAX_S


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
            assert goes_on.wait(WAIT_S)
        return initialised(plan, transactional_id, *rest)

    monkeypatch.setattr(producer_pool, "initialised", second_is_slow)
    pool = ProducerPool(plan)
    try:
        used = pool.take(1)
        pool.initialise_ahead()  # the slow one
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
    with pytest.raises(SettingRefused, match=r"librdkafka 2\.\d+.* does not log the producer id"):
        initialised(plan, "other")


SINKS = 11
"""More than a process remembers pools that nobody uses."""


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessPools]:
    """A process that has no pools yet."""
    pools = ProcessPools()
    monkeypatch.setattr(writer, "process_pools", pools)
    yield pools
    for pool in pools._pools.values():
        pool.close()


@pytest.mark.deep
def test_many_sinks_in_one_task(broker: Broker, pools: ProcessPools) -> None:
    """However many they are, and however often: each keeps the producers that it writes with."""
    count = producer_pool.POOLS_IDLE_MAX + 1
    names = [broker.topic(f"many-{number}", partitions=1) for number in range(count)]
    with contextlib.ExitStack() as stack:
        made = [broker.sink(name) for name in names]
        sinks = [stack.enter_context(opened(sink)) for sink in made]
        for sequence in (1, 2):
            order = [WriteOrder(sink.run, sequence, 0, sequence) for sink in sinks]
            writers = [
                s.opened.writers.open(o, TaskName(0, 0, 0))
                for s, o in zip(sinks, order, strict=True)
            ]
            for writer in writers * 2:
                assert writer.write(frame([b"v"])) is None
            for sink, one in zip(sinks, [writer.prepare() for writer in writers], strict=True):
                assert one is not None
                verified = sink.participant.verify([one])
                sink.participant.commit(sink.permit(verified), verified)
        assert len(list(pools._pools)) == count
    assert [len(broker.read(name)) for name in names] == [4] * count


def plans(broker: Broker, count: int) -> list[ProducerPlan]:
    scopes = [KafkaScope("query", f"out-{number}", "test") for number in range(count)]
    return [ProducerPlan(broker.servers, (), scope, new_incarnation(), 60_000) for scope in scopes]


class User:
    """Some writer."""


def test_pools_go_when_nobody_uses_them(
    broker: Broker, pools: ProcessPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those idle for longest, of more than a few, and never at once; one whose user was
    forgotten is idle as well.
    """
    monkeypatch.setattr(producer_pool, "POOL_IDLE_MIN_S", 3600.0)
    many = plans(broker, SINKS)
    kept, users = User(), [User() for _ in many]
    taken: dict[ProducerPlan, ProducerPool] = {}
    for plan, user in zip(many, users, strict=True):
        taken[plan] = pools.pool_of(plan, user)
    for plan, user in zip(many[:-1], users[:-1], strict=True):
        taken[plan].leave(user)
    del users, user
    gc.collect()
    pools.pool_of(many[1], kept)
    assert len(list(pools._pools)) == SINKS
    monkeypatch.setattr(producer_pool, "POOL_IDLE_MIN_S", -1.0)
    pools.pool_of(many[1], kept)
    assert list(pools._pools) == [many[1], *many[-producer_pool.POOLS_IDLE_MAX - 1 : -1]]


def test_a_later_run_ends_the_pools_of_the_one_before(
    broker: Broker, pools: ProcessPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same sink, when nobody has used them for some time."""
    monkeypatch.setattr(producer_pool, "POOL_IDLE_MIN_S", -1.0)
    first, other = plans(broker, 2)
    users = User(), User(), User()
    used = pools.pool_of(first, users[0])
    pools.pool_of(other, users[1])
    later = replace(first, incarnation=new_incarnation())
    pools.pool_of(later, users[2])
    assert list(pools._pools) == [first, other, later]
    used.leave(users[0])
    pools.pool_of(later, users[2])
    assert list(pools._pools) == [other, later]


@pytest.mark.deep
def test_a_forked_process_has_pools_of_its_own(broker: Broker, pools: ProcessPools) -> None:
    """And ends nothing of its parent's: librdkafka would wait for threads that are not there."""
    (plan,) = plans(broker, 1)
    user = User()
    pool = pools.pool_of(plan, user)
    assert set(pool.topics.facts(["never-made"])) == {"never-made"}
    gc.collect()  # clients that other tests have left are theirs to end, and not the child's
    child = os.fork()
    if child == 0:
        os._exit(0 if pools.pool_of(plan, user) is not pool and gc.collect() >= 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
        with pytest.raises(InvariantBroken, match="after it was let go"):
            use()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 600, "a b", "\ud800"])
def test_a_producer_takes_no_name_that_c_reads_otherwise(plan: ProducerPlan, name: str) -> None:
    """Whoever calls it: the name would be cut at a NUL, and for an endless one there is no topic
    at all.
    """
    producer = Producer(plan.producer_settings(None))
    with_headers = frame([b"v"], headers=pa.array([[]], messages.HEADERS))
    try:
        with pytest.raises(DeliveryError, match="TOPIC_EXCEPTION"):
            produce(producer, with_headers, name, timeout_ms=1_000)
        with pytest.raises(DeliveryError, match="TOPIC_EXCEPTION"):
            producer.produce_array(name, np.zeros(1, dtype=librdkafka.MESSAGE), timeout_ms=1_000)
        with pytest.raises(InvariantBroken):
            producer.produce_array(
                "t", np.zeros(4, dtype=librdkafka.MESSAGE)[::2], timeout_ms=1_000
            )
    finally:
        producer.destroy()
