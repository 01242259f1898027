"""What only MySQL and MariaDB can do, or do in a way of their own."""

from tests.kit.sql.mysql_server import database

__all__ = ["database"]
