"""The write job: a micro-batch's rows from Spark's tasks into the sinks' writers."""
