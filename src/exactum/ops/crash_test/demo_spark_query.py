"""The same query as ``query.py``, through Spark's own Kafka sink: at least once."""

import sys

import exactum


def main(bootstrap_servers: str, checkpoint: str) -> None:
    """Shout every order, at least once."""
    spark = exactum.local_session("spark-demo", master="local[2]")
    orders = exactum.read_kafka(
        spark, "orders", bootstrap_servers=bootstrap_servers, start="earliest"
    )
    query = (
        orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        .writeStream.trigger(processingTime="1 second")
        .format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", "shouted_spark")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
