"""Sends orders, and reads what the query has made of them: python orders.py send, or read."""

import secrets
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from sinks import SERVERS

QUIET_S = 3
PATIENCE_S = 60


def send(servers: str, count: int) -> list[str]:
    """Write ``count`` new orders into the topic "orders"; returns them."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    day = secrets.token_hex(2)
    sent = [f"order {day}-{number}" for number in range(count)]
    for number, order in enumerate(sent):
        producer.produce("orders", key=f"customer-{number % 7}", value=order)
    if producer.flush(30):
        sys.exit(f"Kafka at {servers} did not take all orders within 30 s.")
    return sent


def count_sent(servers: str) -> int:
    """How many orders there are in the topic "orders"."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "counter"})
    topics = consumer.list_topics(timeout=10).topics
    missing = [name for name in ("orders", "shouted") if name not in topics]
    if missing:
        names = " and no topic ".join(missing)
        sys.exit(f"Kafka at {servers} has no topic {names}. Make it first.")
    partitions = topics["orders"].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition("orders", p))[1] for p in partitions]
    consumer.close()
    return sum(ends)


def read(servers: str, count: int) -> list[str]:
    """The topic "shouted": until ``count`` records are read, and no more come for some seconds."""
    # Exactly-once is visible to those who read committed records only.
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    group = {"group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **settings, **group})
    consumer.subscribe(["shouted"])
    values: list[str] = []
    while True:
        message = consumer.poll(PATIENCE_S if len(values) < count else QUIET_S)
        if message is None:
            break
        if message.error():
            raise KafkaException(message.error())
        values.append(message.value().decode())
    consumer.close()
    return values


def main() -> None:
    try:
        before = count_sent(SERVERS)
    except KafkaException as error:
        sys.exit(f"Kafka at {SERVERS} does not answer. Start it with: make servers\n{error}")
    if sys.argv[1:] == ["send"]:
        sent = send(SERVERS, 1000)
        print(f"{before + len(sent)} records in the topic orders")
    else:
        found = read(SERVERS, before)
        print(f"{before} records in the topic orders")
        print(f"{len(found)} records in the topic shouted, {len(set(found))} different ones")


if __name__ == "__main__":
    main()
