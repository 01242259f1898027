"""What is put on file of a connection, so that an operator's command reaches the same server as the
query does, and is as careful: by libpq's names, and without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from exactum.sql.postgres.session import PLACE, PostgresSession, place_of, service_of
from exactum.sql.url import Address, is_secret

MANNER = frozenset(
    {
        "channel_binding",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "krbsrvname",
        "load_balance_hosts",
        "options",
        "require_auth",
        "requirepeer",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcertmode",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslmode",
        "sslnegotiation",
        "sslrootcert",
        "sslsni",
        "target_session_attrs",
    }
)
"""Listed one by one: a later libpq may have new options, and secrets among them. ``sslkey`` and the
like are paths."""
LOGIN = frozenset({"user", "passfile"})
"""libpq fills them in for whoever runs it, so only those that were given are the query's."""
_SETTING = re.compile(r"(?:-c|--)(?P<name>[A-Za-z][A-Za-z0-9_-]*)=.*", re.DOTALL)
_WORD = re.compile(r"(?:\\.|[^\\\s])+", re.DOTALL)


def recorded_options(session: PostgresSession, address: Address) -> dict[str, str]:
    """As the session was made: by the URL, ``connect=``, a service, and libpq's variables.

    Raises:
        SqlFailure: the session is broken.
    """
    used = session.call(session.connection.info.get_parameters)
    given = dict(address.options)
    # Its user may be the query's, too. libpq before 18 does not say that there was one.
    is_service = bool(service_of(given))
    recorded = _place(given, used) | {
        name: value
        for name, value in used.items()
        if name in MANNER or (name in LOGIN and (name in given or is_service))
    }
    if "options" in recorded:
        recorded["options"] = without_own_settings(recorded["options"])
    return {name: value for name, value in recorded.items() if value}


def _place(given: Mapping[str, str], used: Mapping[str, str]) -> dict[str, str]:
    """All hosts, and their names. psycopg tells libpq of one host at a time, and of the address
    that its name has now (``psycopg/_conninfo_attempts.py``); a failover changes both.
    """
    asked, libpqs = place_of(given), {name: used[name] for name in PLACE if name in used}
    if not (asked["host"] or asked["hostaddr"]):
        return libpqs  # a service's, or libpq's own
    if "," not in asked["port"]:  # one for all, which a service may have said
        asked["port"] = libpqs.get("port") or asked["port"]
    return asked | {"dbname": libpqs.get("dbname", "")}


def without_own_settings(options: str) -> str:
    """Of the server's command line what sets its own parameters, none of which holds a secret. One
    with a dot in its name is the user's (``app.token``); other switches are left out as well.
    """
    words = iter(_WORD.findall(options))
    kept = []
    for word in words:
        setting = f"-c{next(words, '')}" if word == "-c" else word
        match = _SETTING.fullmatch(setting)
        if match is not None and not is_secret(match["name"]):
            kept.append(setting)
    return " ".join(kept)
