"""An epoch of very many tasks: its transactions are committed whatever time that takes, also
over several starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import pytest
from confluent_kafka import TopicPartition
from kafka.errors import ConcurrentTransactionsError

from exactum.errors import Unavailable
from exactum.kafka.client import DescribeTransactionsRequest
from exactum.kafka.failure import KafkaFailure
from exactum.kafka.requests import BrokerRequests, Patience
from exactum.kafka.routing import Again, Question
from exactum.kafka.transaction import KafkaTransaction
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import open_many, opened, wait_for_rest

PARTITIONS = 4
T = TypeVar("T")


def asking(broker: Broker, **patience: int) -> closing[BrokerRequests]:
    settings = {"bootstrap.servers": broker.servers}
    return closing(BrokerRequests(settings, "test", Patience(**patience)))


def test_a_deadline_counts_from_the_last_answer(broker: Broker) -> None:
    """What goes on is not given up, however often it has to ask; who hears nothing more gives
    up.
    """
    achieved: list[int] = []

    def step() -> str:
        time.sleep(0.12)  # longer than the deadline
        if len(achieved) == 5:
            return "all"
        achieved.append(1)
        raise Again("one more")

    def stuck() -> str:
        raise Again("nothing new")

    with asking(broker, deadline_ms=100) as requests:
        assert requests._router.retry(step, lambda: len(achieved)) == "all"
        with raised(Unavailable, "nothing new"):
            requests._router.retry(stuck, lambda: len(achieved))


def test_a_broker_that_answers_for_one_after_the_other(broker: Broker) -> None:
    """Each round takes longer than the deadline, and ends with one answer more: all are had."""
    names, busy = ["a", "b", "c", "d"], ConcurrentTransactionsError.errno

    def read(answer: Any, asked: Sequence[str]) -> Iterator[tuple[str, int, str]]:
        time.sleep(0.12)
        for name in asked:
            yield name, 0 if name == asked[0] else busy, name

    question = Question(
        lambda ids: DescribeTransactionsRequest(transactional_ids=list(ids)),
        read,
        also_retriable=frozenset([KafkaFailure.CONCURRENT]),
    )
    with asking(broker, deadline_ms=100) as requests:
        answers = requests._router.by_coordinator(names, question)
    assert answers == {name: (0, name) for name in names}


def test_others_are_answered_while_many_commit(broker: Broker) -> None:
    """Their requests, sent once, are not refused because so many are under way on the same
    connection. What several commit at once, each of them commits.
    """
    name, count = broker.topic("crowd", partitions=PARTITIONS), 100
    with opened(broker.sink(name)) as sink, asking(broker) as requests:
        ends = {
            t.transactional_id: t.producer
            for t in map(KafkaTransaction.of, open_many(sink, name, PARTITIONS, count))
        }
        admin = requests._router.connection().admin
        ended: list[dict[str, int]] = []
        threads = [
            threading.Thread(target=lambda: ended.append(requests.commit_transactions(ends)))
            for _ in range(4)
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                admin.describe_cluster()
        finally:
            for thread in threads:
                thread.join()
        assert ended == [dict.fromkeys(ends, 0)] * 4
    assert len(broker.read(name)) == count


def test_leaders_are_heard_of_some_producers(broker: Broker) -> None:
    """Of all that wrote to a partition within a day, those of long ago as well, or of those that
    are asked about.
    """
    name = broker.topic("heard", partitions=PARTITIONS)
    with opened(broker.sink(name)) as sink, asking(broker) as requests:
        made = open_many(sink, name, PARTITIONS, 9)
        ids = [KafkaTransaction.of(one).producer_id for one in made]
        partitions = [(name, index) for index in range(PARTITIONS)]
        every = requests.describe_producers(partitions)
        some = requests.describe_producers(partitions, of={ids[0], ids[5]})
        assert sorted(i for known in every.values() for i in known) == sorted(ids)
        assert {p: set(known) for p, known in some.items() if known} == {
            (name, 0): {ids[0]},
            (name, 1): {ids[5]},
        }
        assert some.keys() == every.keys()
        sink.participant.abort(sink.participant.list_open())


@pytest.mark.deep
def test_two_thousand(broker: Broker) -> None:
    """As many are verified, committed, committed again by the next start, and swept, each in a
    linear time.
    """
    name, count, servers = broker.topic("huge", partitions=PARTITIONS), 2_000, broker.servers
    with opened(broker.sink(name)) as sink:
        prepared = open_many(sink, name, PARTITIONS, count)
        verified = timed("verify", lambda: sink.participant.verify(prepared))
        permit = sink.permit(verified)
        assert (
            len(timed("commit", lambda: sink.participant.commit(permit, verified)).committed)
            == count
        )
        with opened(broker.sink(name)) as later:
            assert (
                len(timed("again", lambda: later.participant.commit(permit, verified)).committed)
                == count
            )
            open_many(sink, name, PARTITIONS, count)
            seen = timed("list", later.participant.list_open)
            assert len(seen) == count
            timed("abort", lambda: later.participant.abort(seen))
            assert later.participant.list_open() == []
    wait_for_rest(servers, [TopicPartition(name, i) for i in range(PARTITIONS)])
    assert sorted(int(r.value) for r in broker.read(name)) == list(range(count))


def timed(what: str, call: Callable[[], T]) -> T:
    began_s = time.perf_counter()
    result = call()
    print(f"{what}: {time.perf_counter() - began_s:.1f} s")
    return result
