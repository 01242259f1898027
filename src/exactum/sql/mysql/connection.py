"""PyMySQL's connection, made safer and quicker. Imported only where PyMySQL is known to be
installed.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import pymysql.connections
from pymysql.err import OperationalError
from pymysql.protocol import MysqlPacket

LOCAL_FILE_REFUSED = 2068
"""The number that MySQL's own client library gives to this."""

if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[Any]
else:  # generic for type checkers only
    _Connection = pymysql.connections.Connection


class Connection(_Connection):
    """Two things are added to PyMySQL, by methods that are private to it (the tests show that they
    still are called).

    - A server may answer *any* statement by asking for a file of the client (LOAD DATA LOCAL), and
      PyMySQL sends whichever it names. Here it gets the one that ``local_file`` names, or nothing.
    - Without TLS options PyMySQL encrypts if the server offers it and verifies nothing, and yet
      reads the system's list of authorities for each connection: tens of milliseconds, for every
      task.
    """

    local_file: bytes | None = None
    _answers = 0

    def _execute_command(self, command: Any, sql: Any) -> Any:
        self._answers = 0
        return super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        packet = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        self._answers += 1
        if (
            self._answers == 1
            and packet.is_load_local_packet()
            and packet.get_all_data()[1:] != self.local_file
        ):
            self._force_close()  # type: ignore[attr-defined]
            raise OperationalError(
                LOCAL_FILE_REFUSED, "the server asked for a file that was not offered to it"
            )
        return packet

    def _create_ssl_ctx(self, sslp: Any) -> Any:
        if isinstance(sslp, Mapping) and not sslp:
            return _unverified()
        return super()._create_ssl_ctx(sslp)  # type: ignore[misc]


@cache
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
