"""``MySQLSink``: a table of MySQL or MariaDB as the target of a query."""

from __future__ import annotations

from collections.abc import Mapping

from exactum.sql.dialect import Dialect
from exactum.sql.mysql.dialect import MySQLDialect
from exactum.sql.mysql.session import address_of
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address


class MySQLSink(SqlSink):
    """Writes a frame's rows into an InnoDB table of MySQL (8.0 and later) or MariaDB (10.11
    and later).

    The frame's columns go into the table's columns of the same names; those that the frame lacks
    take their defaults. A value arrives as it is, or its row is refused: nothing is rounded, cut or
    filled up (see docs/reference/types.md).

    Args:
        url: ``mysql://user:password@host:port/database`` (or ``mariadb://``); special characters
            are percent-encoded, options of ``connect`` may follow as ``?name=value``. The password
            is never shown, logged or recorded.
        table: ``"table"``, or ``"database.table"`` for one outside the URL's database; a name with
            a dot in it is put in double quotes. exactum keeps ``exactum_ledger`` in the same
            database; the user needs the right to create tables there once. Only the driver
            connects, with two sessions; rows wait in files, see ``staging`` of ``exactly_once``.
        mode: ``"append"``, or ``"upsert"``: rows replace those of the same ``key``; the user needs
            CREATE TEMPORARY TABLES on the URL's database.
        key: for an upsert, the columns of a primary or unique key. The table must have no other
            unique key: MySQL upserts by whichever a row hits.
        order_by: for an upsert, columns by which the last row of a key is found within an epoch:
            the one with the greatest values (NULL is lowest), then the one that came last in the
            frame's partition. Default: that.
        delete_when: for an upsert, a boolean column that is not written: where it is true in the
            last row of a key, the table's row of that key is deleted.
        create_table: create the table if it is missing: text byte by byte, timestamps as
            datetime(6) in UTC.
        connect: further options of PyMySQL: connect_timeout, read_timeout, write_timeout (seconds),
            ssl_ca, ssl_cert, ssl_key, ssl_key_password, ssl_verify_cert, ssl_verify_identity,
            ssl_disabled, unix_socket, bind_address, local_infile (False: load by INSERT, even where
            the server takes LOAD DATA LOCAL).
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.

    Raises:
        SettingRefused: a setting that is wrong or cannot hold the guarantee.
    """

    def _server(self, url: str, connect: Mapping[str, object] | None) -> tuple[Dialect, Address]:
        return MySQLDialect(), address_of(url, connect, self.where)
