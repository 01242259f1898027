"""What the user adds to what a checkpoint has on file of its sinks: how to log in."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from exactum.checkpoint.decision_place import MYSQL_SCHEMES, POSTGRES_SCHEMES
from exactum.errors import SettingRefused
from exactum.ops.targets.properties_file import SERVERS, client_settings_of

MYSQL_PASSWORD = "MYSQL_PWD"
"""Environment variable of MySQL's own tools."""
PGPASSFILE = "PGPASSFILE"
"""Read by libpq itself, as PGPASSWORD and others are."""
_NAMED_URL = re.compile(
    rf"(?P<name>.+?)=(?P<url>(?:{'|'.join(POSTGRES_SCHEMES + MYSQL_SCHEMES)})://.*)", re.DOTALL
)


@dataclass(frozen=True)
class Access:
    """Credentials, and sinks of the user's own. ``repr`` shows none of it.

    ``kafka``: librdkafka's settings for every cluster, without the servers; ``kafka_servers``:
    those of the same file, None where it names none. ``urls``: of databases, by the participant's
    name. ``sinks``: ``MODULE:NAME`` or ``FILE.py:NAME``.
    """

    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    kafka_servers: str | None = None
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    sinks: str | None = None

    @staticmethod
    def of(
        command_config: Path | None = None, urls: Sequence[str] = (), sinks: str | None = None
    ) -> Access:
        """From the options as they were typed; ``urls`` are of the form NAME=URL.

        Raises:
            SettingRefused: the file cannot be read or used, or a URL has another form. No value is
                repeated.
        """
        settings = {} if command_config is None else client_settings_of(command_config)
        servers = settings.pop(SERVERS, None)
        named: dict[str, str] = {}
        for text in urls:
            match = _NAMED_URL.fullmatch(text)
            if match is None:
                raise SettingRefused(
                    "COMMAND_ARGUMENT",
                    "--url must be NAME=URL: the sink's name as 'exactum transactions list' shows "
                    "it, and postgresql://user:password@host/database or mysql://...",
                )
            named[match["name"]] = with_password(match["url"])
        return Access(settings, servers, named, sinks)


def with_password(place: str) -> str:
    """The URL of a MySQL database with the password that MYSQL_PWD holds, where it has none of its
    own; anything else as it is.
    """
    password = os.environ.get(MYSQL_PASSWORD)
    try:
        parts = urlsplit(place)
        has_password = parts.password is not None
    except ValueError:  # whoever connects says what is wrong with it
        return place
    if not password or has_password or parts.scheme not in MYSQL_SCHEMES:
        return place
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
