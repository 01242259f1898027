"""Where brokers listen, as people write it, and what a listener asks of its clients.

Where security.protocol says something else, a client is hung up on or reads noise, as it might
while brokers die: whoever got no answer asks here before he says that another start may help.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import suppress

from exactum.errors import SettingRefused
from exactum.kafka.settings.connection_settings import unverified_context

TIMEOUT_S = 2.0
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([\w.%:]+)\]|([\w.%:-]+)):(\d{1,5})", re.ASCII)
"""What stands before :// counts for nothing, as with Java's client: ``PLAINTEXT://host:port``."""
_ID = b"exac"
_SASL_HANDSHAKE = b"\0\0\0\x0c" + b"\0\x11\0\1" + _ID + b"\xff\xff\0\0"
"""Version 1, for a mechanism without a name: it needs no rights, and is always answered."""
_NO_SASL = b"\0\x22"  # ILLEGAL_SASL_STATE
_TLS_ALERT = b"\x15\x03"


def checked(servers: object, where: str) -> str:
    """The addresses as every client takes them: ``host:port``, with commas between.

    Raises:
        SettingRefused: one of them can be no address, or there is none.
    """
    each = [a.strip() for a in servers.split(",")] if isinstance(servers, str) else []
    found = [_address(a, where) for a in each if a]
    if not found:
        raise SettingRefused(
            "KAFKA_ADDRESS", f"{where}: bootstrap_servers must be text like 'localhost:9092'."
        )
    return ",".join(found)


def _address(text: str, where: str) -> str:
    match = _ADDRESS.fullmatch(text)
    host = (match[1] or match[2]) if match else ""
    with suppress(UnicodeError):  # an empty label, or one of more than 63 letters
        if match and host.encode("idna") and 0 < int(match[3]) < 1 << 16:
            return f"[{host}]:{match[3]}" if ":" in host else f"{host}:{match[3]}"
    raise SettingRefused(
        "KAFKA_ADDRESS",
        f"{where}: bootstrap_servers has {text!r}, which is not host:port, or several with commas.",
    )


def connected(address: str, timeout_s: float) -> socket.socket:
    """To a checked address. Raises OSError."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout_s)


def mismatch(settings: Mapping[str, str], where: str) -> SettingRefused | None:
    """What is wrong with ``security.protocol`` among librdkafka's ``settings``; None: nothing, or
    nobody answers.
    """
    asked = settings.get("security.protocol", "PLAINTEXT").upper()
    for address in checked(settings.get("bootstrap.servers"), where).split(","):
        with suppress(OSError):
            answer, tls = _answer(address, tls=False), "PLAINTEXT"
            if answer.startswith(_TLS_ALERT):
                answer, tls = _answer(address, tls=True), "SSL"
            kind = tls if answer[8:10] == _NO_SASL else f"SASL_{tls}"
            if answer[4:8] == _ID and kind != asked:
                return SettingRefused(
                    "KAFKA_SETTING",
                    f"{where}: the listener at {address} is one of {kind}, and the "
                    f"security.protocol given is {asked}. Correct it, or the port.",
                )
    return None


def _answer(address: str, *, tls: bool) -> bytes:
    wire = connected(address, TIMEOUT_S)
    with unverified_context().wrap_socket(wire) if tls else wire as wire:
        wire.sendall(_SASL_HANDSHAKE)
        return wire.recv(64)
