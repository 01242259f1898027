"""Spark: the entry is ``delivery``; a micro-batch goes through ``run`` and ``write``."""
