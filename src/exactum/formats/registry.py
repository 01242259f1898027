"""Schemas of a Confluent schema registry: the reader's on the driver, the writers' in the tasks.

A record in the registry's wire format begins with the id of the schema it was written with: a magic
byte 0 and a number, or a magic byte 1 and a GUID; or it has this in a header. A registry that does
not answer is ``Unavailable`` and never a property of a record. That it does not know a schema is
believed only in its own words, and only when it says so for some seconds.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.formats.format import BadRecord, Reader, reason_of
from exactum.packages import not_installed

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

DESCRIPTORS = "serialized"
"""A form of Protobuf schemas."""
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
FRAME_BYTES_MAX = 1_000
"""How much stands before a value at most: hostile bytes are no number of a million digits."""
READERS_MAX = 1_000
"""How many schemas a task remembers how to read."""
WAITED_IDS_MAX = 1_000
"""Of how many ids a process remembers that it has waited for them."""
CONTEXT = ":."
"""Begins a subject that says which context it is in: ``:.lab:orders-value``."""
REFUSED = (400, 401, 403, 405, 406, 407, 422)
TLS_REFUSED = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")


class _Unknown(Exception):
    """The registry says that it does not have what the text names."""


@dataclass(frozen=True)
class RegistryAddress:
    """Which registry, with the client's settings. Its text is the URL without credentials.

    ``kind`` is the kind of schemas that is asked for: AVRO, JSON, PROTOBUF.
    """

    settings: tuple[tuple[str, Any], ...] = field(repr=False)
    kind: str

    @property
    def form(self) -> str | None:
        """In which schemas are asked for; None: their text."""
        return DESCRIPTORS if self.kind == "PROTOBUF" else None

    def __str__(self) -> str:
        return ", ".join(
            _without_credentials(url.strip()) for url in str(dict(self.settings)["url"]).split(",")
        )


@dataclass(frozen=True)
class SchemaText:
    """A registered schema: its text, its kind, and those it refers to, (name, text), each after
    those that it refers to itself. ``rules`` names those that change values.
    """

    text: str
    kind: str
    references: tuple[tuple[str, str], ...] = ()
    rules: tuple[str, ...] = ()


def place(
    given: str | Mapping[str, Any] | None, subject: str | None, where: str
) -> RegistryAddress | None:
    """The registry that the user named for a format, or None; checks the settings by making a
    client of them.

    Raises:
        SettingRefused: they are not settings of a client, or the subject has a context.
    """
    if given is None:
        return None
    if (subject or "").startswith(CONTEXT):
        raise SettingRefused(
            "REGISTRY_ARGUMENT",
            f"{where}: the subject {subject!r} has a context, in which ids are counted on their "
            "own. Give the URL of the context, 'http://localhost:8081/contexts/.lab', and the "
            "subject without it.",
        )
    settings = {"url": given} if isinstance(given, str) else dict(given)
    urls = settings.get("url")
    if not isinstance(urls, str) or not all(_is_url(each.strip()) for each in urls.split(",")):
        raise SettingRefused(
            "REGISTRY_ARGUMENT",
            f"{where}: registry must be a URL like 'http://localhost:8081', or settings with a "
            "'url'.",
        )
    items = tuple(sorted({**DEFAULTS, **settings}.items()))
    made = RegistryAddress(items, where.upper())
    _client(made)
    return made


def with_ids(column: pa.Array, headers: pa.Array, name: str) -> pa.Array:
    """The records with what stands in their last header ``name``, the id of a schema, before them;
    ``headers`` are those of Kafka as Spark has them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.equal(pc.struct_field(pc.list_flatten(headers), "key"), name)).as_py():
        return column
    made = []
    for data, given in zip(column.to_pylist(), headers.to_pylist(), strict=True):
        ids = [one["value"] or b"" for one in given or () if one["key"] == name]
        made.append(ids[-1] + data if ids and data is not None else data)
    return pa.array(made, column.type)


def reader_schema(at: RegistryAddress, subject: str | None, version: int | None) -> SchemaText:
    """The schema of ``subject``, the latest version where none is given.

    Raises:
        SettingRefused: no subject is given, there is none of this name, it is of another kind, or
            it has rules that change values.
        Unavailable: the registry did not answer.
    """
    if not subject:
        raise SettingRefused(
            "REGISTRY_ARGUMENT",
            f"Which schema shall the records of registry {at} be read with? Give subject= (usually "
            "'<topic>-value'), or the schema itself.",
        )
    named = f"subject {subject!r}" + ("" if version is None else f", version {version}")
    _client(at).clear_latest_caches()
    try:
        ask = partial(_version, at, subject, version)
        found = _found(at, named, ask, time.monotonic() + TIMEOUT_S)
    except _Unknown as unknown:
        raise SettingRefused(
            "REGISTRY_SCHEMA", f"The schema registry {at} does not know {unknown}. Check the name."
        ) from None
    why = _unusable(at, found)
    if why:
        raise SettingRefused(
            "REGISTRY_SCHEMA",
            f"The schema of {named} of the schema registry {at} {why}. Name another one, or decode "
            "with a function.",
        )
    return found


def registered(
    at: RegistryAddress, made: Callable[[SchemaText, tuple[int, ...]], Reader]
) -> Reader:
    """A reader of records with the id of the schema they were written with. One for each task.

    ``made`` makes a reader of the values of a schema, and of the message of Protobuf at a place in
    it; BadRecord and any other error of it make those records bad.

    A schema never changes under its id; that an id is unknown is kept for the task only. The
    records of a task were there before it began, and their schemas before them, so one wait from
    then on is enough for all of its ids.
    """
    from confluent_kafka.schema_registry.serde import SchemaId

    until_s = time.monotonic() + TIMEOUT_S

    @lru_cache(READERS_MAX)
    def reader_of(number: int | str, place: tuple[int, ...]) -> Reader | str:
        """Or why the records are bad."""
        try:
            schema = _writer(at, number, until_s)
        except BadRecord as error:
            return str(error)
        try:
            return made(schema, place)
        except (ExactumError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  (fastavro and protobuf have many of their own)
            return f"its schema, id {number}, cannot be used: {reason_of(error)}"

    def read(data: bytes) -> Any:
        stream, frame = io.BytesIO(data[:FRAME_BYTES_MAX]), SchemaId(at.kind)
        try:
            frame.from_bytes(stream)
        except Exception:  # noqa: BLE001  (it has some of its own, and struct's)
            raise BadRecord(_unframed(data)) from None
        number = frame.id if frame.guid is None else str(frame.guid)
        found = reader_of(number, tuple(frame.message_indexes or ()))
        if isinstance(found, str):
            raise BadRecord(found)
        return found(data[stream.tell() :])

    return read


def _unframed(data: bytes) -> str:
    """Why a record is not in the registry's wire format."""
    if data[:1] > b"\1":
        return (
            f"the magic byte is {data[0]}, not 0 or 1: not in the schema registry's wire format, "
            "or its schema's id is in a header that is not read (includeHeaders=True)"
        )
    return f"{len(data)} bytes are too short for the schema registry's wire format"


def _writer(at: RegistryAddress, number: int | str, until_s: float) -> SchemaText:
    """
    Raises:
        BadRecord: the registry says that it does not know the id, also after a while; or the id
            names a schema of another kind, or one with rules that change values.
        Unavailable: the registry did not answer.
    """
    until_s = min(until_s, _first_asked_s(at, number) + TIMEOUT_S)
    try:
        found = _found(at, f"schema id {number}", partial(_by_id, at, number), until_s)
    except _Unknown as unknown:
        raise BadRecord(f"{unknown} is not known to the schema registry") from None
    if why := _unusable(at, found):
        raise BadRecord(f"its schema, id {number}, {why}")
    return found


@cache
def _client(at: RegistryAddress) -> SchemaRegistryClient:
    """The client of this process. It sends one request at a time, and a task has one thread.

    It remembers schemas by id alone: there is one for each form.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise SettingRefused(
            "PACKAGE_MISSING", not_installed("A schema registry needs", str(error.name), "registry")
        ) from None
    try:
        return SchemaRegistryClient(dict(at.settings))
    except (ValueError, TypeError, OSError) as error:  # OSError: a file of a certificate
        names = ", ".join(name for name, _ in at.settings)
        raise SettingRefused(
            "REGISTRY_ARGUMENT",
            f"The settings of the schema registry {at} are not those of a client "
            f"({type(error).__name__}); given are: {names}. See SchemaRegistryClient of "
            "confluent-kafka.",
        ) from None


@lru_cache(WAITED_IDS_MAX)
def _first_asked_s(at: RegistryAddress, number: int | str) -> float:
    """When this process first asked for an id: the next tasks do not wait for it once more."""
    return time.monotonic()


def _found(
    at: RegistryAddress, named: str, ask: Callable[[], Schema], until_s: float
) -> SchemaText:
    """What ``ask`` finds, with its references. That there is none is believed when it is asked
    again at ``until_s`` of the monotonic clock.

    Raises:
        Unavailable: the registry did not answer, or not with a schema.
        SettingRefused: it does not let us in.
        _Unknown: it says that it has no such schema, or not what the schema refers to.
    """
    try:
        return _asked(at, named, ask)
    except _Unknown:
        time.sleep(max(0.0, until_s - time.monotonic()))
        return _asked(at, named, ask)


def _asked(at: RegistryAddress, named: str, ask: Callable[[], Schema]) -> SchemaText:
    schema = _answer(at, named, ask)
    references: dict[str, str] = {}
    _add_references(at, schema, references)
    kind = str(schema.schema_type or "AVRO").upper()
    return SchemaText(schema.schema_str, kind, tuple(references.items()), tuple(_rules(schema)))


def _answer(at: RegistryAddress, named: str, ask: Callable[[], Schema]) -> Schema:
    """One question, as ``_found`` asks it."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        schema = ask()
        if not isinstance(schema.schema_str, str):
            raise ValueError("no schema in the answer")
    except SchemaRegistryError as error:
        if error.error_code in UNKNOWN_CODES:
            raise _Unknown(named) from None
        if error.http_status_code in REFUSED:
            raise SettingRefused(
                "REGISTRY_ACCESS",
                f"The schema registry {at} refuses access (HTTP {error.http_status_code}). Check "
                "the address and the credentials in registry=, and version=. Nothing of the epoch "
                "is visible.",
            ) from None
        raise Unavailable(_silent(at, f"HTTP {error.http_status_code}")) from None
    except Exception as error:  # noqa: BLE001  (its HTTP client's own; the text may hold the URL with a password)
        _client(at).clear_caches()  # it keeps every answer, also one that is no schema
        if any(word in str(error) for word in TLS_REFUSED):
            raise SettingRefused(
                "REGISTRY_ACCESS",
                f"The schema registry {at} takes no TLS connection, or its certificate is not "
                "trusted. Check the address and ssl.ca.location in registry=.",
            ) from None
        raise Unavailable(_silent(at, type(error).__name__)) from None
    return schema


def _silent(at: RegistryAddress, what: str) -> str:
    return (
        f"The schema registry {at} did not answer ({what}). No record is taken for a bad one, and "
        "nothing of the epoch is visible; start the query again."
    )


def _add_references(at: RegistryAddress, schema: Schema, found: dict[str, str]) -> None:
    """
    Raises:
        _Unknown: one is not there, or in another context, whose own references nobody could tell
            from those of this one.
    """
    for one in schema.references or ():
        if one.name in found:
            continue
        named = (
            f"{one.name!r} (subject {one.subject!r}, version {one.version}), which it refers to,"
        )
        if one.subject.startswith(CONTEXT):
            raise _Unknown(named)
        referred = _answer(at, named, partial(_version, at, one.subject, one.version, deleted=True))
        _add_references(at, referred, found)
        found[one.name] = referred.schema_str


def _by_id(at: RegistryAddress, number: int | str) -> Schema:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    client = _client(at)
    if isinstance(number, int):
        return client.get_schema(number, fmt=at.form)
    try:
        return client.get_schema_by_guid(number, fmt=at.form)
    except SchemaRegistryError as error:
        if error.http_status_code == 404:
            client.get_schema_types()  # it answers, and so the 404 is its own: it has no GUIDs
            error.error_code = NO_SCHEMA
        raise


def _version(
    at: RegistryAddress, subject: str, version: int | None, deleted: bool = False
) -> Schema:
    client = _client(at)
    if version is None:
        return client.get_latest_version(subject, fmt=at.form).schema
    return client.get_version(subject, version, deleted, fmt=at.form).schema


def _unusable(at: RegistryAddress, found: SchemaText) -> str:
    """Why values cannot be read with a schema, or nothing."""
    if found.kind != at.kind:
        return f"is of kind {found.kind}, not {at.kind}"
    if found.rules:
        return (
            f"has rules that change values, which exactum does not apply: {', '.join(found.rules)}"
        )
    return ""


def _rules(schema: Schema) -> Iterator[str]:
    """The rules of a data contract that Confluent's client applies when it reads, or to come from
    one version to another, but for mere conditions.
    """
    given = schema.rule_set
    if given is None or (getattr(given, "enable_at", None) or "ALL") not in ("ALL", "CLIENT"):
        return
    for phase in ("domain_rules", "encoding_rules", "migration_rules"):
        for rule in getattr(given, phase, None) or ():
            if not rule.disabled and rule.kind != "CONDITION" and rule.mode != "WRITE":
                yield f"{rule.name} ({rule.type})"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "..").encode("idna")  # refuses empty labels
        return parts.scheme in ("http", "https") and parts.port != 0 and bool(host)
    except ValueError:
        return False


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
