"""From the Java client's settings, as Spark's Kafka source takes them, to librdkafka's.

Spark reads the topics with the Java client. What the driver asks the brokers besides (start
positions, topic ids, group offsets) goes through librdkafka, which must log in the same way. Where
it cannot read what the JVM reads (key stores in JKS, login modules), the user gives librdkafka's
own settings as ``client=``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from exactum.errors import SettingRefused
from exactum.kafka.settings.security_settings import SECURITY_PREFIXES

PREFIX = "kafka."
"""Before each of the Java client's settings among the options of Spark's source."""

_SAME = {
    "bootstrap.servers",
    "client.dns.lookup",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "security.protocol",
    "ssl.key.password",
}
_STORES = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}
"""Java's names for PEM files and PEM texts, and librdkafka's."""
_NO_MEANING = {
    "ssl.truststore.type",
    "ssl.keystore.type",
    "ssl.truststore.password",
    "ssl.keystore.password",
}
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.PlainLoginModule|scram\.ScramLoginModule)\s+required\s(.*);\s*",
    re.DOTALL,
)
_LOGIN_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


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
        if name in _SAME:
            settings[name] = value
        elif name == "sasl.jaas.config":
            settings |= _login(value, refused)
        elif name == "ssl.endpoint.identification.algorithm":
            settings[name] = value or "none"
        elif name in _STORES and _is_pem(name, java):
            settings |= dict.fromkeys(_STORES[name], value)
        elif name in _NO_MEANING and name not in _STORES:
            continue
        elif name.startswith(SECURITY_PREFIXES):
            raise refused(name)
    return settings


def _is_pem(name: str, java: Mapping[str, str]) -> bool:
    store = name.split(".")[1]
    return java.get(f"ssl.{store}.type", "JKS").upper() == "PEM"


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
    instead = {
        "sasl.jaas.config": "'sasl.mechanism': ..., 'sasl.username': ..., 'sasl.password': ...",
        "ssl.truststore.location": "'ssl.ca.location': '/path/to/ca.pem'",
        "ssl.keystore.location": "'ssl.certificate.location': '/path/to/client.pem', "
        "'ssl.key.location': ...",
    }.get(name, "librdkafka's settings for the same")
    return SettingRefused(
        f"{where}: the driver asks the brokers for offsets and topics with librdkafka, which "
        f"cannot use 'kafka.{name}' as it is given for the JVM. Say by client= how it connects: "
        f"client={{'security.protocol': ..., {instead}}}, with all settings that its connection "
        "needs. Key stores can also be PEM files (kafka.ssl.truststore.type=PEM), which both can "
        "read."
    )
