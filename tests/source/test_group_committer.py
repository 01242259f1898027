"""Commits to a group, from a process of their own, while the broker dies and comes back."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from exactum.local import LocalKafka
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

COMMITS = """
import sys
from exactum.errors import Unavailable
from exactum.kafka.requests import TopicRequests
requests = TopicRequests({"bootstrap.servers": sys.argv[1]}, "here", timeout_ms=2000)
offset = refused = 0
while sys.stdin.readline():
    offset += 1
    while True:
        try:
            requests.commit_group("mirror", {("t", 0): offset})
            break
        except Unavailable:
            refused += 1
    print(offset, refused, flush=True)
"""
KILLS = 3
DOWN_S = 2.5


@pytest.mark.deep
def test_the_coordinator_dies_in_the_middle_of_commits() -> None:
    """The process lives (librdkafka's admin client ends it), waits no longer than it says, and
    goes on committing.
    """
    with LocalKafka() as kafka:
        kafka.create_topic("t", partitions=1)
        command = [sys.executable, "-c", COMMITS, kafka.bootstrap_servers]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def ask() -> None:
                process.stdin.write("commit\n")
                process.stdin.flush()

            def answer() -> tuple[int, int]:
                line = process.stdout.readline()
                assert line, f"the process ended with {process.wait()}"
                offset, refused = map(int, line.split())
                return offset, refused

            try:
                for number in range(1, KILLS + 1):
                    ask()
                    assert answer()[0] == 2 * number - 1
                    kafka.kill()
                    ask()
                    time.sleep(DOWN_S)
                    kafka.restart()
                    offset, refused = answer()
                    assert offset == 2 * number
                    assert refused >= number, (
                        "a commit while the broker is down is not done in time"
                    )
            finally:
                process.stdin.close()
            assert process.wait(WAIT_MAX_S) == 0
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "mirror"})
        (cell,) = consumer.committed([TopicPartition("t", 0)], timeout=WAIT_MAX_S)
        consumer.close()
        assert cell.offset == 2 * KILLS
