"""The demo's query: python demo_query.py BOOTSTRAP_SERVERS SOURCE TARGET CHECKPOINT"""

import sys

import exactum


def main(bootstrap_servers: str, source: str, target: str, checkpoint: str) -> None:
    """Shout every order, exactly once."""
    spark = exactum.local_session("exactum-demo", master="local[2]")
    orders = exactum.read_kafka(
        spark, source, bootstrap_servers=bootstrap_servers, start="earliest"
    )
    shouted = orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    once = exactum.exactly_once(exactum.KafkaSink(target, bootstrap_servers=bootstrap_servers))
    once.start(shouted.writeStream, checkpoint=checkpoint).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
