"""Producers made ahead of need: a task takes one that is ready, where there is one."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from exactum.errors import SettingRefused
from exactum.kafka import librdkafka, producer_pool
from exactum.kafka.producer import Producer
from exactum.kafka.producer_pool import ProducerPlan, ProducerPool, initialised
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
    initialised, goes_on = producer_pool.initialised, threading.Event()

    def second_is_slow(plan: ProducerPlan, transactional_id: str, *rest: Any) -> Producer:
        if transactional_id.endswith("/1"):
            assert goes_on.wait(WAIT_S)
        return initialised(plan, transactional_id, *rest)

    monkeypatch.setattr(producer_pool, "initialised", second_is_slow)
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


def test_a_librdkafka_that_logs_something_else(plan: ProducerPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactum.kafka.producer._ACQUIRED", re.compile(b"Got PID"))
    with pytest.raises(SettingRefused, match=r"librdkafka 2\.\d+.* does not log the producer id"):
        initialised(plan, "other")
