"""Where a database server is. The only place of the SQL layer that sees a password; nothing here
prints one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from exactum.errors import SettingRefused

HIDDEN = "***"


@dataclass(frozen=True)
class Address:
    """A server and a database on it. Picklable, hashable; neither ``repr`` nor ``str`` show a
    secret.

    where: for messages and names, without password: ``postgresql://shop@db.example:5432/shop``.
    options: (name, value) pairs in the client library's own names, with the password among them.
    """

    where: str
    options: tuple[tuple[str, str], ...] = field(repr=False)

    def __str__(self) -> str:
        return self.where

    @property
    def place(self) -> str:
        """The server and the database, whoever the user is."""
        scheme, _, rest = self.where.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def scrub(self, text: str) -> str:
        """``text`` without any secret of this address: for everything a server or a client library
        says.
        """
        for secret in self._secrets():
            for form in {secret, quote(secret, safe=""), repr(secret)[1:-1]}:
                text = text.replace(form, HIDDEN)
        return " ".join(text.split())

    def _secrets(self) -> list[str]:
        return sorted((v for n, v in self.options if is_secret(n) and v), key=len, reverse=True)


def is_secret(option: str) -> bool:
    name = option.lower()
    return any(part in name for part in ("password", "passwd", "passphrase", "secret"))


def split_url(url: str, schemes: Sequence[str], where: str) -> dict[str, str]:
    """What stands in ``scheme://user:password@host:port/database?option=value``, decoded, by these
    names.

    Args:
        schemes: the allowed ones; the first is named in errors.
        where: which sink, for errors.

    Raises:
        SettingRefused: it is no such URL; the message does not repeat it, for it may hold a
            password.
    """
    example = f"{schemes[0]}://user:password@host:port/database"
    try:
        parts = urlsplit(url)
        port = parts.port
    except (TypeError, ValueError, AttributeError):
        raise SettingRefused(
            "SQL_URL", f"{where}: the URL cannot be read; it must look like {example}."
        ) from None
    if parts.scheme not in schemes:
        raise SettingRefused(
            "SQL_URL", f"{where}: the URL must begin with {schemes[0]}://, like {example}."
        )
    refuse_plain_signs(url, parts.hostname, where)
    found = {
        "user": parts.username,
        "password": parts.password,
        "host": parts.hostname,
        "port": None if port is None else str(port),
        "database": parts.path.lstrip("/"),
    }
    given = {name: unquote(text) for name, text in found.items() if text}
    return {**dict(parse_qsl(parts.query, keep_blank_values=True)), **given}


def refuse_plain_signs(url: str, host: str | None, where: str) -> None:
    """Refuse a URL whose password has an @ or a / as they are. What stands behind it would be taken
    for a part of the host or the database, and shown wherever these are.

    Args:
        host: as the client has read it.

    Raises:
        SettingRefused: it has; the message does not repeat the URL.
    """
    scheme, _, rest = url.partition("://")
    if not scheme.isalpha():  # libpq's other form: host=... password=...
        return
    _, _, path = rest.partition("?")[0].partition("/")
    if "@" in path or "@" in (host or ""):
        raise SettingRefused(
            "SQL_URL",
            f"{where}: the URL has an @ in its host or its database. If it is of the password, "
            "write special characters in it as %XX: @ as %40, / as %2F, : as %3A.",
        )


def merged(
    options: Mapping[str, str], further: Mapping[str, object] | None, where: str
) -> tuple[tuple[str, str], ...]:
    """``options`` and the user's ``connect=`` mapping as sorted pairs of text; the latter win.

    Raises:
        SettingRefused: a name or a value is no plain text, number or boolean.
    """
    if further is not None and not isinstance(further, Mapping):
        raise SettingRefused(
            "SQL_URL", f"{where}: connect= must be a dictionary of the client's options."
        )
    result = dict(options)
    for name, value in (further or {}).items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise SettingRefused(
                "SQL_URL",
                f"{where}: connect={{...}} takes names with text or numbers; {name!r} has neither.",
            )
        result[name] = str(value)
    return tuple(sorted(result.items()))
