"""From the topic "orders" into the topic "shouted", exactly once."""

import logging

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

import exactum
from sinks import SERVERS, sinks


def shouted(orders: DataFrame) -> DataFrame:
    """What the query computes. Write your own here: any Spark transformation."""
    return orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")


def query(spark: SparkSession, servers: str, checkpoint: str) -> DataStreamWriter:
    """The query, to be started. It goes on where the folder ``checkpoint`` says."""
    # Spark's own spark.readStream.format("kafka") works as well.
    orders = exactum.read_kafka(spark, "orders", bootstrap_servers=servers, start="earliest")
    return (
        shouted(orders)
        .writeStream.queryName("shout")
        .foreachBatch(exactum.exactly_once(*sinks(servers)))
        .option("checkpointLocation", checkpoint)
    )


if __name__ == "__main__":
    logging.basicConfig()
    logging.getLogger("exactum").setLevel(logging.INFO)  # says where the query begins
    session = exactum.local_session("shout")
    query(session, SERVERS, "data/checkpoint").start().awaitTermination()
