"""A Kafka client's ``.properties`` file, as Kafka's own tools take it by ``--command-config``."""

from __future__ import annotations

import re
from pathlib import Path

from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import of_java

_PAIR = re.compile(r"(?P<name>(?:\\.|[^\\\s:=])+)\s*[:=]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_MEANT = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
SERVERS = "bootstrap.servers"


def read_properties(path: Path) -> dict[str, str]:
    """The pairs in a file, as Java reads one: comments, continued lines, escapes.

    Raises:
        SettingRefused: the file cannot be read. No value is repeated: it may be a password.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SettingRefused(
            "COMMAND_ARGUMENT", f"--command-config {path} cannot be read: {reason}."
        ) from None
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is not None:
            found[_unescaped(match["name"])] = _unescaped(match["value"])
    return found


def client_settings_of(path: Path) -> dict[str, str]:
    """librdkafka's settings for a connection as the file describes it.

    Raises:
        SettingRefused: the file cannot be read, or has a security setting that librdkafka has no
            word for.
    """

    def refused(name: str) -> SettingRefused:
        return SettingRefused(
            "COMMAND_ARGUMENT",
            f"--command-config {path}: {name} is for the Java client only. Give key and trust "
            "stores as PEM files (ssl.truststore.type=PEM), sasl.jaas.config with the module of "
            "PLAIN or SCRAM.",
        )

    pairs = {name.lower(): value for name, value in read_properties(path).items()}
    return of_java(pairs, refused)


def _logical_lines(text: str) -> list[str]:
    """Without comments and empty lines; one that ends in an odd number of backslashes goes on."""
    lines: list[str] = []
    begun = ""
    for natural in text.splitlines():
        line = natural.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        line = begun + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = line[:-1]
            continue
        lines.append(line)
        begun = ""
    return [*lines, begun] if begun else lines


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        found = match[1]
        return chr(int(found[1:], 16)) if len(found) == 5 else _MEANT.get(found, found)

    return _ESCAPED.sub(one, text)
