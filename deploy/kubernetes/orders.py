"""Orders in, shouted orders and their audit out, under one decision. Your job goes here."""

import os

from pyspark.sql import SparkSession

import exactum

BROKERS = os.environ["BROKERS"]
SINKS = [
    exactum.KafkaSink("shouted", bootstrap_servers=BROKERS),
    exactum.KafkaSink("audit", bootstrap_servers=BROKERS),
]

if __name__ == "__main__":
    spark = SparkSession.builder.appName("orders").getOrCreate()
    orders = exactum.read_kafka(spark, "orders", bootstrap_servers=BROKERS, start="earliest")
    rows = orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    once = exactum.exactly_once(*SINKS)
    query = once.start(rows.writeStream, checkpoint=os.environ["CHECKPOINT"], name="orders")
    query.awaitTermination()
