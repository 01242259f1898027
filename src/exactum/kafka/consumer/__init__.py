"""Consumers of a worker that stay between micro-batches."""
