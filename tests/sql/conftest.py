"""One real PostgreSQL for these tests, and databases on it."""

from tests.kit.sql.postgres_server import database, postgres

__all__ = ["database", "postgres"]
