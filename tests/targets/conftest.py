"""A PostgreSQL database of one test."""

from __future__ import annotations

from tests.kit.sql.postgres_server import database

__all__ = ["database"]
