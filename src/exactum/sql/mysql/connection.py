"""PyMySQL's connection, made safer. Imported only where PyMySQL is known to be
installed.
"""

from __future__ import annotations

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
    """A server may answer *any* statement by asking for a file of the client (LOAD DATA LOCAL), in
    its first result or a further one, and PyMySQL sends whichever it names. Here it gets the one
    that ``local_file`` names, or nothing: by methods that are private to PyMySQL (the tests show
    that they still are called).
    """

    local_file: bytes | None = None
    _answers = 0

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._answers = 0
        return super()._read_query_result(unbuffered)  # type: ignore[misc]

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
