"""`make bench`: exactum against Spark's own Kafka sink, in one alternating run."""
