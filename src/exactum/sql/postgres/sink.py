"""``PostgresSink``: a table in PostgreSQL as the target of a query."""

from __future__ import annotations

from collections.abc import Mapping

from exactum.sql.dialect import Dialect
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.session import address_of
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address


class PostgresSink(SqlSink):
    """Writes a frame's rows into a table of PostgreSQL 12 or later, each epoch once.

    A frame's columns go into the columns of the same name (by all but the case, if only one fits
    so). What is missing, or has a type that cannot be taken, is refused at start; a value that a
    column cannot hold (too long, out of range, null where none may be) goes to the dead letters or
    stops the epoch, with the row's key and the column named.

    Args:
        url: ``postgresql://user:password@host:port/database?sslmode=require``, or anything else
            that libpq takes.
        table: ``"table"`` or ``"schema.table"``, spelled as in the catalog and not quoted; a name
            with a dot in it is put in double quotes. exactum keeps ``exactum_ledger`` in the same
            schema; the user needs the right to create tables there once. Only the driver connects,
            with two sessions; rows wait in files, see ``staging`` of ``exactly_once``.
        mode: ``"append"`` (default) or ``"upsert"``, by ``key``; that needs the right TEMPORARY on
            the database, which everybody has by default.
        key: for an upsert: the columns that identify a row; the table needs a unique constraint on
            exactly these. Within an epoch the last row of a key wins.
        order_by: what "last" means in an upsert: the row with the greatest values in these columns,
            NULL lowest. Default, and for ties: the row that came last, by Spark's partition number
            and then by its place in the partition; rows of one key that come from one Kafka
            partition keep their order unless the query shuffles.
        delete_when: for an upsert: a boolean column of the frame that is not written; where the
            last row of a key has it true, the key's row is deleted.
        create_table: create the table from the frame's columns if it does not exist; ``key``
            becomes its primary key.
        connect: further libpq options (``{"sslmode": "verify-full", "sslrootcert":
            "/etc/ca.pem"}``); they win.
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.

    Raises:
        SettingRefused: psycopg is not installed, or a setting cannot be what it is. No password is
            ever shown.
    """

    def _server(self, url: str, connect: Mapping[str, object] | None) -> tuple[Dialect, Address]:
        return PostgresDialect(), address_of(url, connect, self.where)
