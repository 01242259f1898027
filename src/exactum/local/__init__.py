"""A real Kafka broker for a laptop and for tests; and the jars that it and Spark need."""

from exactum.local.broker import broker_jars
from exactum.local.kafka import LocalKafka
from exactum.spark.runtime.spark_jars import checkpoint_jar, columnar_kafka_jar, spark_kafka_jars

__all__ = [
    "LocalKafka",
    "broker_jars",
    "checkpoint_jar",
    "columnar_kafka_jar",
    "spark_kafka_jars",
]
