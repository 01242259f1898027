"""From the topic "orders" into the topic "shouted", exactly once."""

import logging

from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum import Query
from sinks import SERVERS, sinks


def shouted(orders: DataFrame) -> DataFrame:
    """What the query computes. Write your own here: any Spark transformation."""
    return orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")


def started(spark: SparkSession, servers: str, checkpoint: str, **trigger: object) -> Query:
    """The query. It goes on where the folder ``checkpoint`` says."""
    # Spark's own spark.readStream.format("kafka") works as well.
    orders = exactum.read_kafka(spark, "orders", bootstrap_servers=servers, start="earliest")
    writer = shouted(orders).writeStream
    return exactum.exactly_once(*sinks(servers)).start(
        writer.trigger(**trigger) if trigger else writer, checkpoint=checkpoint, name="shout"
    )


if __name__ == "__main__":
    logging.basicConfig()
    logging.getLogger("exactum").setLevel(logging.INFO)  # says where the query begins
    session = exactum.local_session("shout")
    started(session, SERVERS, "data/checkpoint").awaitTermination()
