"""The demo: a query killed again and again beside the same through Spark's own Kafka sink, and what
a reader sees.

    producer -> "orders" -+-> query.py       (exactum)     -> "shouted"       -+-> reader -> seen
                          +-> spark_query.py (Spark's own) -> "shouted_spark" -+      -> verdict
           chaos kills both drivers with SIGKILL, aimed by what their checkpoints and topics show;
           exactum's has a standby that takes over, Spark's is started again

Readers and oracle are those of the crash test; they use nothing of exactum's own protocol.
"""
