"""Real servers for a laptop and for tests: Kafka brokers, and the jars that they and Spark need."""

from exactum.local.jars import broker_jars, spark_kafka_jars
from exactum.local.kafka import LocalKafka

__all__ = ["LocalKafka", "broker_jars", "spark_kafka_jars"]
