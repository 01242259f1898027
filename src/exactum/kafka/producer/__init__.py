"""Transactional producers of a worker: arrays in, no Python object for a record."""
