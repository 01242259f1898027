"""Schemas of a Confluent schema registry: the reader's on the driver, the writers' in the tasks,
each asked for once.

A record in the registry's wire format begins with a magic byte 0 and the id of the schema it was
written with, four bytes. A registry that does not answer is ``Unavailable`` and never a property of
a record. That it does not know a schema is believed only in its own words, and only when it says so
for some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from exactum.errors import SettingRefused, Unavailable
from exactum.formats.format import BadRecord
from exactum.packages import not_installed

MAGIC = 0
PREFIX_BYTES = 5
DEFAULTS: Mapping[str, Any] = {
    "timeout": 10,
    "max.retries": 2,
    "retries.wait.ms": 200,
    "retries.max.wait.ms": 2_000,
}
"""Settings of confluent-kafka's client, so that no wait is without end; times in s and ms as its
names say.
"""
NO_SUBJECT, NO_VERSION, NO_SCHEMA = 40401, 40402, 40403
UNKNOWN_CODES = (NO_SUBJECT, NO_VERSION, NO_SCHEMA)
"""A registry's own words for what it does not have. Any other 404 comes from whatever stands
before it.
"""
TIMEOUT_S = 3.0
"""How long a registry may call a schema unknown that it knows: the one that answers may follow
another one.
"""
REMEMBERED_S, REMEMBERED_IDS_MAX = 60.0, 1_000
"""How long, and of how many ids, a process remembers that it has waited for them."""
PAUSE_S, PAUSE_MAX_S = 0.1, 1.0
REFUSED = (401, 403)


@dataclass(frozen=True)
class RegistryAddress:
    """Which registry, with the client's settings. Its text is the URL without credentials."""

    settings: tuple[tuple[str, Any], ...] = field(repr=False)

    def __str__(self) -> str:
        return ", ".join(
            _without_credentials(url.strip()) for url in str(dict(self.settings)["url"]).split(",")
        )


@dataclass(frozen=True)
class SchemaText:
    """A registered schema: its text, its kind (AVRO, JSON, PROTOBUF), and those it refers to:
    (name, their text).
    """

    text: str
    kind: str
    references: tuple[tuple[str, SchemaText], ...] = ()


def place(given: str | Mapping[str, Any] | None, where: str) -> RegistryAddress | None:
    """The registry that the user named, or None; checks the settings by making a client of them.

    Raises:
        SettingRefused: they are not settings of a client.
    """
    if given is None:
        return None
    settings = {"url": given} if isinstance(given, str) else dict(given)
    if not isinstance(settings.get("url"), str) or not settings["url"].startswith("http"):
        raise SettingRefused(
            f"{where}: registry must be a URL like 'http://localhost:8081', or settings with a "
            "'url'."
        )
    made = RegistryAddress(tuple(sorted({**DEFAULTS, **settings}.items())))
    _client(made)
    return made


def schema_id(data: bytes) -> int:
    """The id of the writer's schema at the start of a record.

    Raises:
        BadRecord: the record is not in the registry's wire format.
    """
    if len(data) < PREFIX_BYTES:
        raise BadRecord(f"{len(data)} bytes are too short for the schema registry's wire format")
    if data[0] != MAGIC:
        raise BadRecord(
            f"the magic byte is {data[0]} and not {MAGIC}: not in the schema registry's wire format"
        )
    return int.from_bytes(data[1:PREFIX_BYTES], "big")


def reader_schema(
    at: RegistryAddress, subject: str | None, version: int | None, kind: str
) -> SchemaText:
    """The schema of ``subject``, the latest version where none is given.

    Raises:
        SettingRefused: no subject is given, there is none of this name, or it is of another kind.
        Unavailable: the registry did not answer.
    """
    if not subject:
        raise SettingRefused(
            f"Which schema shall the records of registry {at} be read with? Give subject= (usually "
            "'<topic>-value'), or the schema itself."
        )
    until = time.monotonic() + TIMEOUT_S
    found = _text(
        at, lambda client: _of_subject(client, subject, version, _format(kind)), kind, until
    )
    if found is None:
        which = "no version" if version is None else f"no version {version}"
        raise SettingRefused(
            f"The schema registry {at} has {which} of subject {subject!r}. Check the name."
        )
    if found.kind != kind:
        raise SettingRefused(
            f"Subject {subject!r} of the schema registry {at} holds {found.kind}, not {kind}."
        )
    return found


class Writers:
    """The schemas that records were written with, by id. One for each task; what is known is kept
    by the process.

    A schema never changes under its id; that an id is unknown is kept for the task only. The
    records of a task were there before it began, and their schemas before them, so one wait from
    then on is enough for all of its ids.
    """

    def __init__(self, at: RegistryAddress) -> None:
        self._at = at
        self._known = _KNOWN.setdefault(at, {})
        self._unknown: set[int] = set()
        self._until = time.monotonic() + TIMEOUT_S
        self._waited_for = _WAITED_FOR.setdefault(at, {})

    def writer(self, schema_id: int, kind: str) -> SchemaText:
        """
        Raises:
            BadRecord: the registry says that it does not know the id, also after a while, or the id
                names a schema of another kind.
            Unavailable: the registry did not answer.
        """
        found = self._known.get((schema_id, kind))
        if found is None and schema_id not in self._unknown:
            now_s = time.monotonic()
            waited = now_s < self._waited_for.get(schema_id, -REMEMBERED_S) + REMEMBERED_S
            until_s = now_s if waited else self._until
            found = _text(
                self._at,
                lambda client: client.get_schema(schema_id, fmt=_format(kind)),
                kind,
                until_s,
            )
            if found is None:
                self._unknown.add(schema_id)
                self._remember(schema_id)
            else:
                self._known[schema_id, kind] = found
                if found.kind != kind:
                    # Asked for in the format of ``kind``. The client keeps that, by the id alone.
                    _CLIENTS.pop(self._at, None)
        if found is None:
            raise BadRecord(f"schema id {schema_id} is not known to the schema registry")
        if found.kind != kind:
            raise BadRecord(f"schema id {schema_id} is of kind {found.kind}, not {kind}")
        return found

    def _remember(self, schema_id: int) -> None:
        """The next tasks of this process ask for this id, and do not wait for it."""
        if len(self._waited_for) >= REMEMBERED_IDS_MAX:
            self._waited_for.clear()
        if time.monotonic() >= self._waited_for.get(schema_id, -REMEMBERED_S) + REMEMBERED_S:
            self._waited_for[schema_id] = time.monotonic()


_WAITED_FOR: dict[RegistryAddress, dict[int, float]] = {}
_KNOWN: dict[RegistryAddress, dict[tuple[int, str], SchemaText]] = {}
"""By id and the kind that was asked for, which decides in what format the text comes."""
_CLIENTS: dict[RegistryAddress, Any] = {}


def _client(at: RegistryAddress) -> Any:
    """The client of this process. It sends one request at a time, and a task has one thread."""
    if at in _CLIENTS:
        return _CLIENTS[at]
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise SettingRefused(
            not_installed("A schema registry needs", str(error.name), "registry")
        ) from None
    try:
        _CLIENTS[at] = SchemaRegistryClient(dict(at.settings))
    except (ValueError, TypeError) as error:
        names = ", ".join(name for name, _ in at.settings)
        raise SettingRefused(
            f"The settings of the schema registry {at} are not those of a client "
            f"({type(error).__name__}); given are: {names}. See SchemaRegistryClient of "
            "confluent-kafka."
        ) from None
    return _CLIENTS[at]


def _text(
    at: RegistryAddress, ask: Callable[[Any], Any], kind: str, until_s: float
) -> SchemaText | None:
    """What ``ask(client)`` finds, with its references; None where the registry says that there is
    no such schema.

    It is asked at least twice before that is believed, and until ``until_s`` of the monotonic
    clock.

    Raises:
        Unavailable: the registry did not answer, or not with a schema.
        SettingRefused: it does not let us in.
    """
    pause_s, again = PAUSE_S, False
    while True:
        asked_s = time.monotonic()
        found = _asked(at, ask, kind)
        if found is not None or (again and asked_s >= until_s):
            return found
        time.sleep(min(pause_s, max(0.0, until_s - asked_s)))
        pause_s, again = min(2 * pause_s, PAUSE_MAX_S), True


def _asked(at: RegistryAddress, ask: Callable[[Any], Any], kind: str) -> SchemaText | None:
    """One look, as ``_text`` takes it."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    client = _client(at)
    try:
        return _with_references(client, ask(client), kind)
    except SchemaRegistryError as error:
        if error.error_code in UNKNOWN_CODES:
            return None
        if error.http_status_code in REFUSED:
            raise SettingRefused(
                f"The schema registry {at} refuses access (HTTP {error.http_status_code}). Check "
                "the credentials in registry=. Nothing of the epoch is visible."
            ) from None
        raise Unavailable(_silent(at, f"HTTP {error.http_status_code}")) from None
    except Exception as error:  # noqa: BLE001  (its HTTP client's own; the text may hold the URL with a password)
        _CLIENTS.pop(at, None)  # it keeps every answer, also one that is no schema
        raise Unavailable(_silent(at, type(error).__name__)) from None


def _silent(at: RegistryAddress, what: str) -> str:
    return (
        f"The schema registry {at} did not answer ({what}). No record is taken for a bad one, and "
        "nothing of the epoch is visible; start the query again."
    )


def _with_references(client: Any, schema: Any, kind: str) -> SchemaText:
    """
    Raises:
        ValueError: the answer has no schema: it is not a registry's.
    """
    if not isinstance(schema.schema_str, str):
        raise ValueError("no schema in the answer")
    references = [
        (
            one.name,
            _with_references(
                client, client.get_version(one.subject, one.version, fmt=_format(kind)).schema, kind
            ),
        )
        for one in schema.references or ()
    ]
    return SchemaText(
        schema.schema_str, str(schema.schema_type or "AVRO").upper(), tuple(references)
    )


def _of_subject(client: Any, subject: str, version: int | None, fmt: str | None) -> Any:
    if version is None:
        return client.get_latest_version(subject, fmt=fmt).schema
    return client.get_version(subject, version, fmt=fmt).schema


def _format(kind: str) -> str | None:
    """Protobuf schemas are asked for as descriptors: their text would need a compiler."""
    return "serialized" if kind == "PROTOBUF" else None


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
