"""The same query as ``demo_query.py``, through Spark's own Kafka sink: at least once."""

import sys

import exactum


def main(bootstrap_servers: str, source: str, target: str, checkpoint: str) -> None:
    """Shout every order, at least once."""
    spark = exactum.local_session("spark-demo", master="local[2]")
    orders = exactum.read_kafka(
        spark, source, bootstrap_servers=bootstrap_servers, start="earliest"
    )
    query = (
        orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
