"""Real servers for a laptop and for tests: Kafka brokers, PostgreSQL, MariaDB; and the jars that
they and Spark need.
"""

from exactum.local.broker import broker_jars
from exactum.local.kafka import LocalKafka
from exactum.local.mariadb import LocalMariaDB
from exactum.local.postgres import LocalPostgres
from exactum.spark.runtime.checkpoint_fs import checkpoint_jar
from exactum.spark.runtime.columnar_kafka import columnar_kafka_jar
from exactum.spark.runtime.connector import spark_kafka_jars

__all__ = [
    "LocalKafka",
    "LocalMariaDB",
    "LocalPostgres",
    "broker_jars",
    "checkpoint_jar",
    "columnar_kafka_jar",
    "spark_kafka_jars",
]
