"""Where brokers listen, and how a client connects and logs in, in the words of three clients.

The user gives librdkafka's settings. The driver's protocol requests go through kafka-python, and
Spark reads its topics with the Java client, whose settings are options of its source: from either
to the other they mean the same, or are refused. What the JVM alone can read (key stores in JKS,
login modules), the user gives in librdkafka's words as ``client=``.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from tempfile import NamedTemporaryFile
from typing import Any

from exactum.errors import SettingRefused

SECURITY_PREFIXES = ("security.", "sasl.", "ssl.")
"""Of settings that concern how a client logs in, in Java's and librdkafka's names."""
PREFIX = "kafka."
"""Before each of the Java client's settings among the options of Spark's source."""
_NAMES = (
    # librdkafka's, kafka-python's, the Java client's; empty where a client has none
    ("bootstrap.servers", "", "bootstrap.servers"),
    ("client.dns.lookup", "", "client.dns.lookup"),
    ("client.id", "client_id", ""),
    ("security.protocol", "security_protocol", "security.protocol"),
    ("sasl.mechanism", "sasl_mechanism", "sasl.mechanism"),
    ("sasl.mechanisms", "sasl_mechanism", ""),
    ("sasl.username", "sasl_plain_username", ""),
    ("sasl.password", "sasl_plain_password", ""),
    ("sasl.kerberos.service.name", "sasl_kerberos_service_name", "sasl.kerberos.service.name"),
    ("ssl.ca.location", "ssl_cafile", "ssl.truststore.location"),
    ("ssl.ca.pem", "", "ssl.truststore.certificates"),
    ("ssl.certificate.location", "ssl_certfile", "ssl.keystore.location"),
    ("ssl.key.location", "ssl_keyfile", "ssl.keystore.location"),
    ("ssl.certificate.pem", "", "ssl.keystore.certificate.chain"),
    ("ssl.key.pem", "", "ssl.keystore.key"),
    ("ssl.key.password", "ssl_password", "ssl.key.password"),
    ("ssl.crl.location", "ssl_crlfile", ""),
)
_VERIFY_HOST, _VERIFY = (
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
"""Which kafka-python and Java say in other ways."""
_PYTHONS = {name: python for name, python, _ in _NAMES if python}
_TEXTS = ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem")
"""Which kafka-python takes as part of a TLS context alone."""
_STORE = re.compile(r"ssl\.(truststore|keystore)\.")
"""Java's stores: files or texts in PEM are librdkafka's as well."""
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.PlainLoginModule|scram\.ScramLoginModule)\s+required\s(.*);\s*",
    re.DOTALL,
)
_LOGIN_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def security_settings(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Of a client's settings those by which it logs in, secrets among them: sorted pairs."""
    return tuple(sorted((n, v) for n, v in settings.items() if n.startswith(SECURITY_PREFIXES)))


def admin_settings(settings: Mapping[str, str], where: str) -> dict[str, Any]:
    """librdkafka's settings as keyword arguments of kafka-python's clients. Only what concerns
    connections.

    Raises:
        SettingRefused: a security setting that kafka-python has no word for.
    """
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _PYTHONS:
            upper = name in ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
            result[_PYTHONS[name]] = value.upper() if upper else value
        elif name.startswith(SECURITY_PREFIXES) and name not in (_VERIFY_HOST, _VERIFY, *_TEXTS):
            raise SettingRefused(
                "KAFKA_SETTING",
                f"{where}: the setting {name!r} is known to librdkafka only, and the driver needs "
                "it for its own connection too. Supported: "
                f"{', '.join(sorted((*_PYTHONS, _VERIFY_HOST, _VERIFY, *_TEXTS)))}.",
            )
    if settings.get(_VERIFY_HOST) == "none":
        result["ssl_check_hostname"] = False
    return result


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    """For what kafka-python cannot be told by names of files: certificates as texts, and none that
    is verified. None: nothing of these.

    Raises:
        OSError: a certificate or a key cannot be read.
    """
    verified = settings.get(_VERIFY) != "false"
    if verified and not settings.keys() & set(_TEXTS):
        return None
    ca, ca_text = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    context = ssl.create_default_context(cafile=ca, cadata=ca_text)
    context.check_hostname = verified and settings.get(_VERIFY_HOST) != "none"
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    certificate, key = settings.get("ssl.certificate.location"), settings.get("ssl.key.location")
    with NamedTemporaryFile("w", suffix=".pem") as file:  # for nobody but this user
        file.writelines(f"{settings[name]}\n" for name in _TEXTS[1:] if name in settings)
        file.flush()
        if certificate or "ssl.certificate.pem" in settings:
            key = key or (file.name if "ssl.key.pem" in settings else None)
            context.load_cert_chain(certificate or file.name, key, settings.get("ssl.key.password"))
    return context


def unverified_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def librdkafka_settings(
    options: Mapping[str, str], client: Mapping[str, str], where: str
) -> dict[str, str]:
    """librdkafka's settings for the cluster that Spark reads with ``options`` (those that begin
    with ``kafka.``).

    ``client``, where it is not empty, takes the place of everything but the bootstrap servers.

    Raises:
        SettingRefused: a security setting that librdkafka has no word for; it says what to give
            instead.
    """
    java = {n[len(PREFIX) :].lower(): v for n, v in options.items() if n.lower().startswith(PREFIX)}
    if client:
        return {"bootstrap.servers": java.get("bootstrap.servers", ""), **client}
    return of_java(java, lambda name: _refused(name, where))


def of_java(java: Mapping[str, str], refused: Callable[[str], SettingRefused]) -> dict[str, str]:
    """librdkafka's settings for those of a connection by the Java client; what does not concern
    connections is left out.

    Raises:
        SettingRefused: what ``refused`` makes of a security setting that librdkafka has no word
            for.
    """
    settings: dict[str, str] = {}
    for name, value in java.items():
        store = _STORE.match(name)
        readable = store is None or java.get(f"{store[0]}type", "JKS").upper() == "PEM"
        same = [own for own, _, javas in _NAMES if javas == name and readable]
        if same:
            settings |= dict.fromkeys(same, value)
        elif name == "sasl.jaas.config":
            settings |= _login(value, refused)
        elif name == _VERIFY_HOST:
            settings[name] = value or "none"
        elif store is not None and name.endswith((".type", ".password")):
            continue
        elif name.startswith(SECURITY_PREFIXES):
            raise refused(name)
    return settings


def _login(jaas: str, refused: Callable[[str], SettingRefused]) -> dict[str, str]:
    """Name and password of a plain or SCRAM login module."""
    match = _LOGIN.fullmatch(jaas)
    if match is None:
        raise refused("sasl.jaas.config")
    given = {
        name: re.sub(r"\\(.)", r"\1", value)
        for name, value in _LOGIN_OPTION.findall(match.group(1))
    }
    if "username" not in given or "password" not in given:
        raise refused("sasl.jaas.config")
    return {"sasl.username": given["username"], "sasl.password": given["password"]}


def _refused(name: str, where: str) -> SettingRefused:
    return SettingRefused(
        "KAFKA_SETTING",
        f"{where}: the driver's own client cannot use 'kafka.{name}' as it is given for the JVM. "
        "Give key stores as PEM files (kafka.ssl.truststore.type=PEM), which both read; or all "
        "that it connects with by client=, in librdkafka's words (docs/source.md).",
    )


# ---- listeners -------------------------------------------------------------------------------


TIMEOUT_S = 2.0
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([\w.%:]+)\]|([\w.%:-]+)):(\d{1,5})", re.ASCII)
"""What stands before :// counts for nothing, as with Java's client: ``PLAINTEXT://host:port``."""
_ID = b"exac"
_SASL_HANDSHAKE = b"\0\0\0\x0c" + b"\0\x11\0\1" + _ID + b"\xff\xff\0\0"
"""Version 1, for a mechanism without a name: it needs no rights, and is always answered."""
_NO_SASL = b"\0\x22"  # ILLEGAL_SASL_STATE
_TLS_ALERT = b"\x15\x03"


def checked_servers(servers: object, where: str) -> str:
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

    With another one than the listener's, a client is hung up on or reads noise, as it might while
    brokers die: whoever got no answer asks here before he says that another start may help.
    """
    asked = settings.get("security.protocol", "PLAINTEXT").upper()
    for address in checked_servers(settings.get("bootstrap.servers"), where).split(","):
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
