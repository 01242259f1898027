"""Librdkafka's C interface, and where Arrow's values lie for it."""
