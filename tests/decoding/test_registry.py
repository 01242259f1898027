"""Formats with a schema registry: what it explains, when it is away, and what follows another."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId

from exactum import Avro, Json, Protobuf
from exactum.errors import SettingRefused, Unavailable
from exactum.formats.registry import with_ids
from tests.kit.decoding.format_cases import (
    decoded,
    framed,
    message,
    proto_file,
    proto_order,
    reason,
)
from tests.kit.decoding.records import avro_record
from tests.kit.decoding.registry import Registry, guid_of
from tests.kit.errors import raised
from tests.kit.sql.certificates import make_certificate

pytestmark = pytest.mark.usefixtures("spark")


def test_references_are_resolved_or_named(registry: Registry) -> None:
    """By subject and version, each once; one that is not there, or in a context, is named."""

    def refer(subject: str, *names: str) -> tuple[dict[str, Any], ...]:
        return tuple({"name": name, "subject": subject, "version": 2} for name in names)

    registry.register("money", avro_record("Money", wrong="long"))
    registry.register("money", avro_record("Money", cents="long"))
    for name in ("Fee", "Price"):
        for _ in range(2):
            schema = avro_record(name, m="Money")
            registry.register(name, schema, references=refer("money", "Money"))
    order = avro_record("R", fee="Fee", price="Price")
    number = registry.register(
        "in-value", order, references=(*refer("Fee", "Fee"), *refer("Price", "Price"))
    )
    given = Avro(registry=registry.url, subject="in-value")
    assert decoded(given, [framed(number) + b"\x0a\x0c"])[0] == [
        {"fee": {"m": {"cents": 5}}, "price": {"m": {"cents": 6}}}
    ]
    for subject in ("gone", ":.lab:money"):
        lost = registry.register(f"from {subject}", '"Money"', references=refer(subject, "Money"))
        with raised(SettingRefused, "REGISTRY_SCHEMA", "'Money'", f"'{subject}'", "version 2"):
            Avro(registry=registry.url, subject=f"from {subject}").bind()
        assert "'Money'" in reason(Avro('"long"', registry=registry.url), framed(lost) + b"\x02")


def rule(kind: str, mode: str, **more: Any) -> dict[str, Any]:
    return {"name": "hideNames", "kind": kind, "mode": mode, "type": "ENCRYPT", **more}


@pytest.mark.parametrize(
    ("rules", "good"),
    [
        ({"domainRules": [rule("TRANSFORM", "WRITEREAD")]}, False),
        ({"domainRules": [rule("TRANSFORM", "READ")]}, False),
        ({"encodingRules": [rule("TRANSFORM", "WRITEREAD")]}, False),
        ({"migrationRules": [rule("TRANSFORM", "UPGRADE")]}, False),
        ({"migrationRules": [rule("TRANSFORM", "UPDOWN")]}, False),
        ({"domainRules": [rule("TRANSFORM", "WRITE")]}, True),
        ({"domainRules": [rule("TRANSFORM", "WRITEREAD", disabled=True)]}, True),
        ({"domainRules": [rule("TRANSFORM", "READ")], "enableAt": "GATEWAY"}, True),
        ({"domainRules": [rule("CONDITION", "READ")]}, True),
        ({"migrationRules": []}, True),
    ],
)
def test_rules_that_change_values_are_refused(
    registry: Registry, rules: dict[str, Any], good: bool
) -> None:
    """A contract's rule that a reader would have to apply is refused by its name, at the start and
    in a record; those that Confluent's own client passes over are passed over.
    """
    number = registry.register("s", '"long"', rules=rules)
    by_subject = Avro(registry=registry.url, subject="s")
    by_schema = Avro('"long"', registry=registry.url)
    if good:
        assert decoded(by_subject, [framed(number) + b"\x02"]) == ([1], {})
        return
    with raised(SettingRefused, "REGISTRY_SCHEMA", "hideNames"):
        by_subject.bind()
    assert "hideNames" in reason(by_schema, framed(number) + b"\x02")


def test_ids_that_are_guids_before_a_record_or_in_a_header(registry: Registry) -> None:
    """Newer clients write a GUID; the last header counts, as in Kafka, and a record without one has
    its id before it.
    """
    proto = registry.register("p", proto_file())
    long, text = registry.register("a", '"long"'), registry.register("b", '"string"')
    json = registry.register("j", {"type": "object"}, kind="JSON")
    registry.has_guids = True

    def header(kind: str, number: int, indexes: list[int] | None = None) -> Any:
        return SchemaId(kind, None, str(guid_of(number)), indexes).guid_to_bytes()

    order = proto_order().SerializeToString()
    plain = Avro('"long"', registry=registry.url)
    assert decoded(plain, [header("AVRO", long) + b"\x02"]) == ([1], {})
    given = Json("a decimal(3,1)", registry=registry.url)
    assert "1.25" in reason(given, header("JSON", json) + b'{"a": 1.25}')
    given = Protobuf(message("Order"), registry=registry.url)
    assert decoded(given, [header("PROTOBUF", proto, [0]) + order])[0][0]["id"] == 7
    assert "shop.Other" in reason(given, header("PROTOBUF", proto, [1]) + order)
    assert "is not known" in reason(plain, b"\1" + bytes(16) + b"\x02")
    assert "too short" in reason(plain, b"\1" + bytes(15))
    registry.has_guids = False
    other = Avro('"long"', registry={"url": registry.url, "max.retries": 1})
    assert "is not known" in reason(other, header("AVRO", long) + b"\x02")

    name = "__value_schema_id"
    both = [(name, header("AVRO", text)), ("x", b""), (name, header("AVRO", long))]
    headers = [both, [("__key_schema_id", header("AVRO", text))], None, [], both]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    pairs = [
        None if one is None else [{"key": key, "value": value} for key, value in one]
        for one in headers
    ]
    records = pa.array([b"\x02", framed(long) + b"\x04", framed(long) + b"\x06", b"\x02", None])
    found = with_ids(records, pa.array(pairs, kind), name).to_pylist()
    values, reasons = decoded(plain, found)
    assert values == [1, 2, 3, None, None] and "magic byte is 2" in reasons[3]
    assert with_ids(records, pa.array([None] * 5, kind), name) is records


def test_what_a_registry_cannot_explain_is_bad(registry: Registry) -> None:
    """Unknown ids, other kinds of schema, other types and a wrong frame are properties of a
    record.
    """
    schema = avro_record("R", id="long")
    number = registry.register("in-value", schema)
    text = registry.register("text", avro_record("R", id="string"))
    other = registry.register("json", {"type": "object"}, kind="JSON")
    nested = registry.register("tree", avro_record("R", id="long", t=["null", "R"]))
    given = Avro(schema, registry=registry.url)
    assert "99999 is not known" in reason(given, framed(99_999) + b"\x02")
    assert "magic byte is 2" in reason(given, b"\x02" + framed(number)[1:] + b"\x02")
    assert "4 bytes are too short" in reason(given, framed(number)[:4])
    assert "0 bytes are too short" in reason(given, b"")
    assert "string for value.id" in reason(given, framed(text) + b"\x02x")
    assert "of kind JSON" in reason(given, framed(other) + b"{}")
    assert "value.t contains itself" in reason(given, framed(nested) + b"\x02" * 1_000_000)
    assert decoded(given, [framed(nested) + b"\x02\x00"]) == ([{"id": 1}], {}), "it need not"
    assert decoded(given, [framed(number) + b"\x0a"]) == ([{"id": 5}], {})


def test_a_registry_that_is_down_is_no_bad_record(registry: Registry) -> None:
    """No answer, or a server's error, is Unavailable for the epoch; the message has no password."""
    number = registry.register("s", '"long"')
    quick = {"url": f"http://me:secret@{registry.address}", "max.retries": 0}
    registry.status = 503
    with raised(Unavailable, registry.address, "HTTP 503") as refused:
        decoded(Avro('"long"', registry=quick), [framed(number) + b"\x02"])
    registry.close()
    with raised(Unavailable, registry.address, "(Connect") as gone:
        decoded(Avro('"long"', registry=quick), [framed(number) + b"\x02"])
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        slow = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}", "timeout": 0.2}
        with raised(Unavailable, "Timeout"):
            decoded(Avro('"long"', registry={**slow, "max.retries": 0}), [framed(1) + b"\x02"])
    assert "secret" not in f"{refused.value}{gone.value}{Avro(registry=quick)!r}"


def test_bytes_alone_have_no_length(registry: Registry) -> None:
    """As Confluent's serializers write them. A union of them is written as Avro says."""
    number = registry.register("s", '"bytes"')
    values = [b"", b"\x00", b"\x02A", b"\x06abc", bytes(range(256))]
    of_bytes = Avro('"bytes"', registry=registry.url)
    assert decoded(of_bytes, [framed(number) + value for value in values]) == (values, {})
    union = registry.register("u", '["null", "bytes"]')
    of_union = Avro('["null", "bytes"]', registry=registry.url)
    assert decoded(of_union, [framed(union) + b"\x02\x02A"]) == ([b"A"], {})


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>default backend - 404</html>"),
        (404, b""),
        (404, b"{}"),
        (404, b"[]"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (404, b'{"error_code": "40403 or so"}'),
        (200, b"<html>log in</html>"),
        (200, b'{"status": "ok"}'),
        (200, b"[]"),
        (200, b""),
    ],
)
def test_what_stands_before_a_registry_does_not_speak_for_it(
    registry: Registry, status: int, body: bytes
) -> None:
    """A 404 without the registry's own code, and a page where a schema belongs, say nothing
    about a record.
    """
    number = registry.register("s", '"long"')
    given = Avro('"long"', registry={"url": registry.url, "max.retries": 0})
    registry.foreign = (status, body)
    with raised(Unavailable, registry.url):
        decoded(given, [framed(number) + b"\x02"])
    with pytest.raises(Unavailable):
        Avro(registry={"url": registry.url, "max.retries": 0}, subject="s").bind()
    registry.foreign = None
    assert decoded(given, [framed(number) + b"\x02"]) == ([1], {})


def test_a_registry_that_follows_another_is_waited_for(registry: Registry) -> None:
    """That a schema is unknown is believed only after another look; one wait is enough for all
    ids of a task.
    """
    number = registry.register("s", '"long"')
    registry.behind = 1
    assert decoded(Avro('"long"', registry=registry.url), [framed(number) + b"\x02"]) == ([1], {})
    registry.behind = 1
    assert decoded(Avro(registry=registry.url, subject="s"), [framed(number) + b"\x02"]) == (
        [1],
        {},
    )
    before = len(registry.requests)
    _, reasons = decoded(
        Avro('"long"', registry=registry.url), [framed(900 + at) + b"\x02" for at in range(50)] * 2
    )
    assert len(reasons) == 100
    asked = registry.requests[before:]
    assert all(asked.count(path) >= 2 for path in asked) and len(asked) < 50 * 2 + 10


def test_a_registry_with_a_password(registry: Registry) -> None:
    """Credentials are used, refused ones are a setting to change, and neither shows them."""
    registry.user = "me:secret"
    number = registry.register("s", '"long"')
    good = {"url": registry.url, "basic.auth.user.info": "me:secret"}
    assert decoded(Avro(registry=good, subject="s"), [framed(number) + b"\x02"]) == ([1], {})
    with raised(SettingRefused, "REGISTRY_ACCESS", "HTTP 401") as refused:
        Avro(registry={**good, "basic.auth.user.info": "me:geheim"}, subject="s").bind()
    assert "geheim" not in str(refused.value) + repr(Avro(registry=good))
    with raised(SettingRefused, "REGISTRY_ARGUMENT", "no.such") as unknown:
        Avro('"long"', registry={**good, "no.such": 1}).bind()
    assert "secret" not in str(unknown.value)


@pytest.mark.parametrize("status", [400, 403, 405, 407, 422])
def test_what_a_registry_refuses_is_a_setting(registry: Registry, status: int) -> None:
    """A version that can be none (422), a TLS port that is asked without TLS (400), a proxy."""
    registry.status = status
    with raised(SettingRefused, "REGISTRY_ACCESS", f"HTTP {status}"):
        Avro(registry=registry.url, subject="s", version=-7).bind()


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://h", "httpx://h", "http://", "http://h:x", "http://h:0", "http://h:65536"),
        *("http://a..b", "http://h,", "http://h,h:1"),
    ],
)
def test_a_url_that_can_be_none_is_refused(url: str) -> None:
    with raised(SettingRefused, "REGISTRY_ARGUMENT", "'url'"):
        Avro('"long"', registry=url).bind()


def test_tls_that_cannot_come_about_is_a_setting(registry: Registry, tmp_path: Path) -> None:
    """On a port without it, with an authority that is not trusted, without its file."""
    made, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with raised(SettingRefused, "REGISTRY_ACCESS", "ssl.ca.location"):
        Avro(registry=registry.url.replace("http:", "https:"), subject="s").bind()
    registry.encrypt(context)
    secured = registry.url.replace("http:", "https:")
    with raised(SettingRefused, "REGISTRY_ACCESS", "ssl.ca.location"):
        Avro(registry=secured, subject="s").bind()
    with raised(SettingRefused, "REGISTRY_ARGUMENT", "FileNotFoundError"):
        Avro('"long"', registry={"url": secured, "ssl.ca.location": "/nowhere/ca.pem"}).bind()
    with raised(SettingRefused, "REGISTRY_SCHEMA", "subject 's'"):
        Avro(registry={"url": secured, "ssl.ca.location": str(made)}, subject="s").bind()


def test_json_with_a_registry(registry: Registry) -> None:
    """The registry's frame is taken off and its id looked up. One that is shorter than the frame,
    and null ones, are no error of their batch.
    """
    number = registry.register("x", {"type": "object"}, kind="JSON")
    given, good = Json("a int", registry=registry.url), framed(number) + b'{"a": 1}'
    for batch in ([b"1", None], [good, b"", b"\0\0", None], [None, good], [b""] * 9):
        values, reasons = decoded(given, batch)
        assert values == [{"a": 1} if one == good else None for one in batch]
        assert list(reasons) == [row for row, one in enumerate(batch) if one not in (None, good)]
    assert "not known" in reason(given, framed(99) + b'{"a": 1}')
    assert "magic byte" in reason(given, b'{"a": 1}')
    needed = Json("a int not null", registry=registry.url)
    assert "missing required field" in reason(needed, framed(number) + b"{}")


def test_subjects_that_are_not_there_are_refused(registry: Registry) -> None:
    """A missing subject, version or name of it is a setting to correct, not a server to wait
    for. Ids are counted within a context, which the URL may name: nothing is read by another one.
    """
    registry.register("in-value", '"long"')
    for given in (Avro, Protobuf):
        with raised(SettingRefused, "REGISTRY_ARGUMENT", "':.lab:in-value'", "/contexts/.lab"):
            given(registry=registry.url, subject=":.lab:in-value").bind()
    with raised(SettingRefused, "REGISTRY_SCHEMA", "subject 'none'"):
        Avro(registry=registry.url, subject="none").bind()
    with raised(SettingRefused, "REGISTRY_SCHEMA", "'in-value'", "version 7"):
        Avro(registry=registry.url, subject="in-value", version=7).bind()
    with raised(SettingRefused, "REGISTRY_ARGUMENT", "subject="):
        Avro(registry=registry.url).bind()
    with raised(SettingRefused, "REGISTRY_SCHEMA", "'in-value'", "AVRO", "PROTOBUF"):
        Protobuf(registry=registry.url, subject="in-value").bind()
