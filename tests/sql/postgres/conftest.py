"""What only PostgreSQL can do, or does in a way of its own."""

from tests.kit.sql.postgres_server import database

__all__ = ["database"]
