"""The sinks of a query as operators' commands reach them: real sink objects, made of what the
checkpoint has on file and what the user gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from exactum.checkpoint.known_sinks import KnownSink, KnownSinks
from exactum.errors import SettingRefused
from exactum.ops.targets.access import MYSQL_PASSWORD, PGPASSFILE, Access
from exactum.ops.targets.given_sinks import given_sinks
from exactum.protocol.sink import Sink

if TYPE_CHECKING:
    from exactum.sql.sink import SqlSink

_PLACE_AND_LOGIN = frozenset(
    {
        "database",
        "dbname",
        "host",
        "hostaddr",
        "passfile",
        "password",
        "port",
        "unix_socket",
        "user",
    }
)
"""The options for which --url stands instead, whatever it says."""
_WITH_CODE = {
    "custom": "it is of a class of your own",
    "write-ahead": "what sends its rows is a function of your own",
}


@dataclass(frozen=True)
class Target:
    """One sink of a query. ``name`` is its participant's, ``present`` whether the last run had it.

    ``sink`` is None where no object can be made of what is known; ``why`` then says what to give.
    """

    name: str
    sink: Sink | None
    known: KnownSink | None
    present: bool
    why: str = ""

    @property
    def kind(self) -> str:
        """kafka, postgres, mysql, files, custom, write-ahead; empty where nothing is on file."""
        return self.known.where.get("kind", "") if self.known is not None else ""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, Spark's type) of what it writes; empty where that is not on file."""
        return self.known.columns if self.known is not None else ()

    def required(self) -> Sink:
        """
        Raises:
            SettingRefused: no object can be made of what is known of it.
        """
        if self.sink is None:
            raise SettingRefused("SINK_UNKNOWN", self.why)
        return self.sink


@dataclass(frozen=True)
class QueryTargets:
    """All sinks of a query: those of its last run first, in their order, then former ones."""

    each: tuple[Target, ...]

    def named(self, name: str) -> Target | None:
        """The sink of that participant's name."""
        return next((target for target in self.each if target.name == name), None)


def targets_of(known: KnownSinks | None, access: Access) -> QueryTargets:
    """The sinks on file, each with an object where one can be made; what ``--sinks`` gives takes
    its place by its name.

    Raises:
        SettingRefused: nothing is on file and nothing is given; ``--sinks`` or ``--url`` names a
            sink that the query does not have; a setting cannot be.
    """
    given = given_sinks(access.sinks) if access.sinks is not None else {}
    if known is None or not known.sinks:
        if not given:
            raise SettingRefused(
                "SINK_UNKNOWN",
                "The checkpoint has no list of this query's sinks: it is not an exactly-once "
                "query. Say which sinks it has by --sinks MODULE:NAME.",
            )
        return QueryTargets(tuple(Target(name, sink, None, True) for name, sink in given.items()))
    names = [sink.name for sink in known.sinks]
    for option, own in (("--sinks", given), ("--url", access.urls)):
        strange = sorted(own.keys() - set(names))
        if strange:
            raise SettingRefused(
                "SINK_UNKNOWN",
                f"{option} names {strange[0]!r}, and this query has no such sink. It has: "
                f"{', '.join(map(repr, names))}.",
            )
    ordered = sorted(known.sinks, key=lambda sink: sink.name not in known.present)
    return QueryTargets(
        tuple(_target(s, given.get(s.name), access, s.name in known.present) for s in ordered)
    )


def _target(known: KnownSink, given: Sink | None, access: Access, present: bool) -> Target:
    if given is not None:
        return Target(known.name, given, known, present)
    kind = known.where.get("kind", "")
    if kind in _MAKERS:
        return Target(known.name, _MAKERS[kind](known, access), known, present)
    reason = _WITH_CODE.get(kind, "its sink does not say what it is")
    why = (
        f"Sink {known.name!r} cannot be made of what the checkpoint has on file: {reason}. Give it "
        "by --sinks MODULE:NAME or --sinks FILE.py:NAME."
    )
    return Target(known.name, None, known, present, why)


def _kafka(known: KnownSink, access: Access) -> Sink:
    from exactum.kafka.sink import KafkaSink

    where = known.where
    return KafkaSink(
        where["topic"] or None,
        bootstrap_servers=where["bootstrap.servers"],
        transactional_id_prefix=where["prefix"],
        transaction_timeout_ms=int(where["transaction_timeout_ms"]),
        producer=access.kafka,
    )


def _postgres(known: KnownSink, access: Access) -> Sink:
    from exactum.sql.postgres.sink import PostgresSink

    make = partial(PostgresSink, **(_of_table(known.where) | _found_table(known)))
    url = access.urls.get(known.name)
    recorded = _recorded(known)
    if os.environ.get(PGPASSFILE):  # an option would be stronger
        recorded.pop("passfile", None)
    return _connected(make, "postgresql://", recorded, url)


def _mysql(known: KnownSink, access: Access) -> Sink:
    from exactum.sql.mysql.sink import MySQLSink

    url = access.urls.get(known.name)
    recorded = _recorded(known)
    if os.environ.get(MYSQL_PASSWORD):
        recorded["password"] = os.environ[MYSQL_PASSWORD]
    return _connected(partial(MySQLSink, **_of_table(known.where)), "mysql://", recorded, url)


def _connected(
    make: Callable[..., SqlSink], scheme: str, recorded: Mapping[str, str], url: str | None
) -> SqlSink:
    """As the query connects. What --url says is stronger; what it does not say of TLS and the like
    still holds, so that nobody is less careful without knowing.
    """
    if url is None:
        return make(scheme, connect=recorded)
    given = {name for name, _ in make(url).address.options}
    left_out = given | _PLACE_AND_LOGIN
    return make(url, connect={n: v for n, v in recorded.items() if n not in left_out})


def _recorded(known: KnownSink) -> dict[str, str]:
    """The options on file, without secrets."""
    return dict(json.loads(known.where["connect"]))


def _found_table(known: KnownSink) -> dict[str, str]:
    """The table with the schema in which the query's start has found it. It may come from the
    query's ``search_path``, or its user's.
    """
    return {"table": ".".join(map(_spelled, json.loads(known.where["found"])))}


def _spelled(name: str) -> str:
    """As ``table=`` takes it."""
    if "." not in name and not name.startswith('"'):
        return name
    return '"' + name.replace('"', '""') + '"'


def _files(known: KnownSink, access: Access) -> Sink:
    from exactum.files.sink import FileSink

    where = known.where
    return FileSink(
        where["path"],
        format=where["format"],
        options=json.loads(where.get("options", "null")),
        partition_by=json.loads(where.get("partition_by", "null")),
        name=known.name,
    )


_MAKERS: Mapping[str, Callable[[KnownSink, Access], Sink]] = {
    "kafka": _kafka,
    "postgres": _postgres,
    "mysql": _mysql,
    "files": _files,
}


def _of_table(where: Mapping[str, str]) -> dict[str, Any]:
    """What a SQL sink is told of its table."""
    return {
        "table": where["table"],
        "mode": where["mode"],
        "key": json.loads(where["key"]),
        "order_by": json.loads(where.get("order_by", "null")),
        "delete_when": where.get("delete_when") or None,
    }
