"""The demo's query: read it, copy it. Run it with: python query.py BOOTSTRAP_SERVERS CHECKPOINT"""

import sys

import exactum


def main(bootstrap_servers: str, checkpoint: str) -> None:
    """Shout every order, exactly once."""
    spark = exactum.local_session("exactum-demo", master="local[2]")
    orders = exactum.read_kafka(
        spark, "orders", bootstrap_servers=bootstrap_servers, start="earliest"
    )
    shouted = orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    once = exactum.exactly_once(exactum.KafkaSink("shouted", bootstrap_servers=bootstrap_servers))
    writer = shouted.writeStream.trigger(processingTime="1 second")
    query = once.start(writer, checkpoint=checkpoint)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
