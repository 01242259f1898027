"""The sinks of a query as operators' commands reach them: real sink objects, made of what the
checkpoint has on file and what the user gives.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exactum.checkpoint.known_sinks import KnownSink, KnownSinks
from exactum.errors import SettingRefused
from exactum.ops.targets.access import MYSQL_PASSWORD, Access
from exactum.ops.targets.given_sinks import given_sinks
from exactum.protocol.sink import Sink

_ADDRESS = re.compile(
    r"\w+://(?:(?P<user>.*)@)?(?P<host>[^@]*?):(?P<port>[0-9,]*)/(?P<database>[^/]*)"
)
"""As ``sql.url.Address.where`` has it: not escaped, and with several hosts perhaps."""
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
        """kafka, postgres, mysql, files, custom, write-ahead; empty where an older exactum wrote
        the file.
        """
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
            raise SettingRefused(self.why)
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
                "The checkpoint has no list of this query's sinks: an older exactum ran it, or it "
                "is not an exactly-once query. Say which sinks it has by --sinks MODULE:NAME."
            )
        return QueryTargets(tuple(Target(name, sink, None, True) for name, sink in given.items()))
    names = [sink.name for sink in known.sinks]
    for option, its in (("--sinks", given), ("--url", access.urls)):
        strange = sorted(its.keys() - set(names))
        if strange:
            raise SettingRefused(
                f"{option} names {strange[0]!r}, and this query has no such sink. It has: "
                f"{', '.join(map(repr, names))}."
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
    reason = _WITH_CODE.get(kind, "an older exactum wrote down too little of it")
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

    url = access.urls.get(known.name)
    connect = None
    if url is None:
        found = _address(known)
        url, connect = "postgresql://", _renamed(found, {"database": "dbname"})
    return PostgresSink(url, connect=connect, **_of_table(known.where))


def _mysql(known: KnownSink, access: Access) -> Sink:
    from exactum.sql.mysql.sink import MySQLSink

    url = access.urls.get(known.name)
    connect = None
    if url is None:
        connect = _address(known)
        url = "mysql://"
        if os.environ.get(MYSQL_PASSWORD):
            connect["password"] = os.environ[MYSQL_PASSWORD]
    return MySQLSink(url, connect=connect, **_of_table(known.where))


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
        "mechanism": where["mechanism"],
        "mode": where["mode"],
        "key": json.loads(where["key"]),
        "order_by": json.loads(where.get("order_by", "null")),
        "delete_when": where.get("delete_when") or None,
    }


def _address(known: KnownSink) -> dict[str, str]:
    """user, host, port and database; those that are not empty.

    Raises:
        SettingRefused: the file has another form of it.
    """
    match = _ADDRESS.fullmatch(known.where["url"])
    if match is None:
        raise SettingRefused(
            f"Where the database of sink {known.name!r} is cannot be read from the checkpoint. "
            f"Give it by --url '{known.name}=postgresql://...' or mysql://..."
        )
    return {name: value for name, value in match.groupdict().items() if value}


def _renamed(values: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {names.get(name, name): value for name, value in values.items()}
