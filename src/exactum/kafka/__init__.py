"""Kafka as a target and as a source's broker: producers, protocol requests, transactions."""
