"""Spark: the entry is ``foreach_batch``; a micro-batch goes through ``run`` and ``write``."""
