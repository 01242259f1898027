"""How commands reach a query's sinks: what is on file, what the user adds, and no secret shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from exactum import FileSink, KafkaSink, MySQLSink, PostgresSink
from exactum.checkpoint.known_sinks import KnownSink, KnownSinks
from exactum.errors import SettingRefused
from exactum.ops.targets.access import Access, with_password
from exactum.ops.targets.options import QueryOptions, query_options
from exactum.ops.targets.properties_file import client_settings_of, read_properties
from exactum.ops.targets.target import targets_of
from exactum.sql.postgres.recorded_options import without_own_settings
from exactum.sql.sink_facts import SinkFacts
from exactum.sql.table import TableName
from tests.kit.errors import raised

SECRET = "s3cret-word"
TABLE = {"mode": "upsert", "key": '["id"]', "order_by": '["at"]'}
KAFKA = {
    "kind": "kafka",
    "bootstrap.servers": "broker:9092",
    "topic": "out",
    "prefix": "shop",
    "transaction_timeout_ms": "60000",
}
POSTGRES = {
    "kind": "postgres",
    "connect": '{"user": "shop", "host": "one,two", "port": "5432,5433", "dbname": "db"}',
    "table": "t",
    "found": '["public", "t"]',
    **TABLE,
}
MYSQL = {
    "kind": "mysql",
    "connect": '{"user": "shop", "host": "db", "port": "3307", "database": "shop"}',
    "table": "t",
    "found": '["public", "t"]',
    **TABLE,
}
FILES = {
    "kind": "files",
    "path": "/data/out",
    "format": "csv",
    "options": '{"header": false}',
    "partition_by": '["day"]',
}


def known(**where: dict[str, str]) -> KnownSinks:
    sinks = tuple(KnownSink(name, {}, place) for name, place in where.items())
    return KnownSinks("q", sinks, frozenset(where))


def test_sinks_are_made_of_what_is_on_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own settings; several hosts and a password of the environment too."""
    monkeypatch.setenv("MYSQL_PWD", SECRET)
    found = targets_of(
        known(kafka=KAFKA, postgres=POSTGRES, mysql=MYSQL, files=FILES), Access()
    ).each
    sinks: list[Any] = [target.required() for target in found]
    kafka, postgres, mysql, files = sinks
    assert isinstance(kafka, KafkaSink) and (kafka._topic, kafka._prefix) == ("out", "shop")
    assert kafka._timeout_ms == 60_000
    assert isinstance(postgres, PostgresSink) and isinstance(mysql, MySQLSink)
    assert postgres._address.option("host") == "one,two"
    assert postgres._address.option("port") == "5432,5433"
    assert (postgres._key, postgres._order_by) == (("id",), ("at",))
    assert mysql._address.option("password") == SECRET
    assert isinstance(files, FileSink) and (files.name, files._partition_by) == ("files", ("day",))
    assert SECRET not in repr(found)


def test_options_on_file_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment and --url are stronger. With --url another place does not change the manner."""
    options = {
        "host": "one",
        "user": "shop",
        "dbname": "db",
        "passfile": "/etc/pgpass",
        "sslmode": "verify-full",
        "sslrootcert": "/etc/ca.pem",
    }
    sinks = known(out=POSTGRES | {"connect": json.dumps(options)})

    def made(access: Access) -> PostgresSink:
        sink = targets_of(sinks, access).each[0].required()
        assert isinstance(sink, PostgresSink)
        return sink

    assert dict(made(Access()).address.options) == options
    monkeypatch.setenv("PGPASSFILE", "/home/me/.pgpass")
    assert "passfile" not in dict(made(Access()).address.options)
    typed = made(Access(urls={"out": "postgresql://me@two/db?sslrootcert="})).address
    manner = {"sslmode": "verify-full", "sslrootcert": ""}
    assert dict(typed.options) == {"user": "me", "host": "two", "dbname": "db", **manner}


@pytest.mark.parametrize(
    ("schema", "table", "spelled"),
    [
        ("app", "t", TableName("app", "t")),
        ("a.b", 'c"d', TableName("a.b", 'c"d')),
        ('"a', "t", TableName('"a', "t")),
    ],
)
def test_the_table_is_the_one_that_was_found(schema: str, table: str, spelled: TableName) -> None:
    """With the schema in which the start has found it."""
    where = {**POSTGRES, "found": json.dumps([schema, table])}
    sinks = KnownSinks("q", (KnownSink("out", {}, where),), frozenset({"out"}))
    sink = targets_of(sinks, Access()).each[0].required()
    assert isinstance(sink, PostgresSink) and SinkFacts.of(sink).table == spelled


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ("-c search_path=app --role=writer", "-csearch_path=app --role=writer"),
        (r"-csearch_path=app,\ b -S 100 -e", r"-csearch_path=app,\ b"),
        ("-c app.token=x --app.password=x -capp.x=y", ""),
        ("-c", ""),
        ("search_path=x", ""),
    ],
)
def test_own_settings_of_a_server(options: str, kept: str) -> None:
    """Its parameters are put on file; a user's own may be a secret."""
    assert without_own_settings(options) == kept


def test_what_needs_code_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink of the user's own class comes by --sinks, by its participant's name."""
    sinks = known(**{"Uploads": {"kind": "custom"}, "kafka:out": KAFKA})
    target = targets_of(sinks, Access()).named("Uploads")
    assert target is not None and target.sink is None
    with raised(SettingRefused, "SINK_UNKNOWN", "'Uploads'", "--sinks"):
        target.required()
    job = tmp_path / "a_job.py"
    job.write_text(
        "from exactum import KafkaSink, WriteAheadSink\n"
        "one = WriteAheadSink(print, name='Uploads')\n"
        "def two(): return {'Uploads': one}\n"
        "def three(): return [one, KafkaSink('out', bootstrap_servers='b:1')]\n"
        "def broken(): raise ValueError('no')\n"
    )
    for name in ("one", "two", "three"):
        found = targets_of(sinks, Access(sinks=f"{job}:{name}"))
        assert found.named("Uploads").required().name == "Uploads"  # type: ignore[union-attr]
        assert isinstance(found.named("kafka:out").required(), KafkaSink)  # type: ignore[union-attr]
    with raised(SettingRefused, "SINK_UNKNOWN"):
        targets_of(known(other=KAFKA), Access(sinks=f"{job}:one"))
    assert [t.name for t in targets_of(None, Access(sinks=f"{job}:three")).each] == [
        "Uploads",
        "kafka:out",
    ]
    for place in ("nowhere", f"{job}:four", f"{job}:broken", f"{tmp_path}/b.py:one"):
        with raised(SettingRefused, "SINKS_OPTION", place):
            targets_of(sinks, Access(sinks=place))
    with raised(SettingRefused, "SINK_UNKNOWN", "--sinks"):
        targets_of(None, Access())


def test_urls_carry_passwords_and_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgresql://shop:{SECRET}@db/shop"
    access = Access.of(urls=[f"postgres:a=b={url}"])
    assert access.urls == {"postgres:a=b": url}
    assert SECRET not in repr(access)
    with pytest.raises(SettingRefused) as refused:
        Access.of(urls=[f"nonsense {SECRET}"])
    assert SECRET not in str(refused.value)
    with raised(SettingRefused, "SINK_UNKNOWN") as refused:
        targets_of(known(files=FILES), access)
    assert SECRET not in str(refused.value)
    monkeypatch.setenv("MYSQL_PWD", "p/w")
    assert with_password("mysql://u@h/d") == "mysql://u:p%2Fw@h/d"
    assert with_password("mysql://u:own@h/d") == "mysql://u:own@h/d"
    assert with_password("/data/decisions") == "/data/decisions"


def test_a_client_properties_file(tmp_path: Path) -> None:
    """As Java reads it; and what librdkafka has no word for is refused without its value."""
    file = tmp_path / "client.properties"
    file.write_text(
        "# comment\n\n security.protocol = SASL_SSL\n"
        "sasl.mechanism:PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'   username="shop" \\\n   password="{SECRET}";\n'
        "ssl.truststore.type PEM\nssl.truststore.location=/etc/ca\\u002epem\n"
        "max.poll.records=5\nbootstrap.servers=b:1"
    )
    assert client_settings_of(file) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "shop",
        "sasl.password": SECRET,
        "ssl.ca.location": "/etc/ca.pem",
        "bootstrap.servers": "b:1",
    }
    access = Access.of(file)
    assert access.kafka_servers == "b:1" and SECRET not in repr(access)
    assert read_properties(file)["max.poll.records"] == "5"
    file.write_text(f"ssl.keystore.location=/x.jks\nssl.keystore.password={SECRET}\n")
    with raised(SettingRefused, "COMMAND_ARGUMENT", "ssl.keystore.location") as refused:
        client_settings_of(file)
    assert SECRET not in str(refused.value)
    with raised(SettingRefused, "COMMAND_ARGUMENT", tmp_path / "none"):
        client_settings_of(tmp_path / "none")


def test_the_options_of_a_command() -> None:
    found: list[tuple[QueryOptions, bool]] = []

    @click.command()
    @query_options
    @click.option("--more", is_flag=True)
    def command(options: QueryOptions, more: bool) -> None:
        found.append((options, more))

    ran = CliRunner().invoke(command, ["--checkpoint", "/c", "--sinks", "a:b", "--more"])
    assert ran.exit_code == 0, ran.output
    assert found == [(QueryOptions("/c", None, Access(sinks="a:b")), True)]
    assert CliRunner().invoke(command, []).exit_code == 2
