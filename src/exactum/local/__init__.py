"""Real servers for a laptop and for tests: Kafka brokers, PostgreSQL, MariaDB, and the jars they
need.
"""

from exactum.local.checkpoint_fs import checkpoint_jar
from exactum.local.connector import spark_kafka_jars
from exactum.local.jars import broker_jars
from exactum.local.kafka import LocalKafka
from exactum.local.mariadb import LocalMariaDB
from exactum.local.postgres import LocalPostgres

__all__ = [
    "LocalKafka",
    "LocalMariaDB",
    "LocalPostgres",
    "broker_jars",
    "checkpoint_jar",
    "spark_kafka_jars",
]
