"""How commands reach a query's sinks: by what the user gives, which nothing of is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from exactum import KafkaSink
from exactum.checkpoint.query_record import KnownSink, QueryRecord
from exactum.errors import SettingRefused
from exactum.ops.targets.options import with_password
from exactum.ops.targets.properties_file import client_settings_of, read_properties
from exactum.ops.targets.sinks import QueryTargets, given_sinks, targets_of
from tests.kit.docs.code import blocks
from tests.kit.environment import ROOT
from tests.kit.errors import raised
from tests.kit.python import python
from tests.kit.transactions.given import given

SECRET = "s3cret-word"
COMMAND = "exactum verify --checkpoint /c"


def known(*names: str, former: tuple[str, ...] = ()) -> QueryRecord:
    sinks = tuple(
        KnownSink(name, {"kafka": name}, present=name in names) for name in (*former, *names)
    )
    return QueryRecord(query_id="q", sinks=sinks)


def kafka(topic: str) -> KafkaSink:
    return KafkaSink(topic, bootstrap_servers="b:1")


def of(found: QueryRecord, sinks: Any) -> QueryTargets:
    return targets_of(found, {} if sinks is None else given_sinks(given(sinks)[1]), COMMAND)


def test_sinks_are_taken_by_their_names() -> None:
    """In the query's order, with what is on file of where their transactions are; the others are
    named, with what to type. Former ones are named alone.
    """
    found = of(known("kafka:a", "kafka:b", former=("kafka:old",)), [kafka("b"), kafka("a")])
    assert [(t.name, t.trace["kafka"], t.present) for t in found.each] == [
        ("kafka:a", "kafka:a", True),
        ("kafka:b", "kafka:b", True),
    ]
    assert found.unseen() == [] and [sink.name for sink in found.former] == ["kafka:old"]
    found = of(known("kafka:a", "kafka:b"), kafka("b"))
    assert found.named("kafka:a") is None and found.left_out == ("kafka:a",)
    (problem,) = found.unseen()
    assert problem.where == "sink 'kafka:a'" and f"{COMMAND} --sinks FILE.py:NAME" in problem.why
    with raised(SettingRefused, "SINKS_NOT_GIVEN", "'kafka:a'", COMMAND, "EXACTUM_SINKS"):
        found.refuse_left_out()
    assert of(known("kafka:a"), None).left_out == ("kafka:a",)
    former = of(known("kafka:a", former=("kafka:old",)), {"kafka:old": kafka("old")})
    assert [(t.name, t.present) for t in former.each] == [("kafka:old", False)]
    letters = of(known("kafka:a"), {"kafka:a": kafka("a"), "dead letters": kafka("dead")})
    assert [(t.name, t.present) for t in letters.each] == [
        ("kafka:a", True),
        ("dead letters", False),
    ]
    with raised(SettingRefused, "SINK_UNKNOWN", "'kafka:c'", "'kafka:a'"):
        of(known("kafka:a"), kafka("c"))
    assert [t.name for t in of(known(), [kafka("a"), kafka("a")]).each] == ["kafka:a", "kafka:a#2"]
    with raised(SettingRefused, "SINKS_NOT_GIVEN", COMMAND):
        of(known(), None)


def test_the_page_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/transactions.md."""
    (program,) = blocks(ROOT / "docs" / "transactions.md")
    (tmp_path / "orders.py").write_text(program)
    monkeypatch.setenv("SHOP", "postgresql://shop@db/shop")
    monkeypatch.chdir(tmp_path)
    for place in ("orders.py:SINKS", "orders:SINKS"):
        assert list(given_sinks(place)) == ["kafka:totals", "postgres:totals"]
    del sys.modules["orders"]


def test_what_a_module_may_hold(tmp_path: Path) -> None:
    job = tmp_path / "a_job.py"
    job.write_text(
        "import exactum\nfrom exactum import KafkaSink, WriteAheadSink\n"
        "one = WriteAheadSink(print, name='Uploads')\n"
        "def two(): return {'Uploads': one}\n"
        "def three(): return [one, KafkaSink('out', bootstrap_servers='b:1')]\n"
        "all_of_it = exactum.exactly_once(*three(), dead_letters=WriteAheadSink(print))\n"
        "def broken(): raise ValueError('no')\n"
        "def ends(): raise SystemExit(4)\n"
        "number, numbers, named = 5, [5], {'Uploads': 5}\n"
    )
    for name, names in (
        ("one", ["Uploads"]),
        ("two", ["Uploads"]),
        ("three", ["Uploads", "kafka:out"]),
        ("all_of_it", ["Uploads", "kafka:out", "dead letters"]),
    ):
        assert list(given_sinks(f"{job}:{name}")) == names
    for name in ("four", "broken", "ends", "number", "numbers", "named"):
        with raised(SettingRefused, "SINKS_OPTION", f"--sinks {job}:{name}"):
            given_sinks(f"{job}:{name}")
    (tmp_path / "argued.py").write_text(
        "import argparse\nargparse.ArgumentParser().parse_args(['x'])"
    )
    for place in ("nowhere", ":x", f"{tmp_path}/b.py:one", f"{tmp_path}/argued.py:SINKS"):
        with raised(SettingRefused, "SINKS_OPTION", place):
            given_sinks(place)


SCRIPTS = {
    "a session of Spark": """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
""",
    "a context of Spark": """
import pyspark
pyspark.SparkContext("local[1]", "app")
""",
    "a session of exactum": """
spark = exactum.local_session("app")
""",
    "a query in a session of any kind": """
exactum.exactly_once(*SINKS).start(None, checkpoint="/checkpoint")
""",
    "a load in a session of any kind": """
exactum.exactly_once(*SINKS, decision_log="/decisions").write(None, id="rows")
""",
    "a micro-batch": """
exactum.exactly_once(*SINKS).for_each_batch(checkpoint="checkpoint")(None, 0)
""",
}


HEAD = "import exactum\nSINKS = [exactum.FileSink('out')]\n"


@pytest.mark.parametrize("starts", SCRIPTS)
def test_a_script_without_a_guard_starts_nothing(tmp_path: Path, starts: str) -> None:
    """It is said what to write. A session of Spark Connect starts no Spark in this process, so what
    is started in one is refused before anything is asked of it.
    """
    (tmp_path / "app.py").write_text(f"{HEAD}{SCRIPTS[starts]}open('started', 'w').close()\n")
    code = "from exactum.ops import cli; cli.main(['doctor', '--sinks', 'app.py:SINKS'])"
    refused = python(code, status=2, cwd=tmp_path)
    assert "[SINKS_START]" in refused.stderr and "__main__" in refused.stderr
    assert refused.stderr.count("\n") == 2 and "JVM" not in refused.stderr
    assert not (tmp_path / "started").exists()


def test_with_the_guard_its_sinks_are_taken(tmp_path: Path) -> None:
    body = "".join(SCRIPTS.values()).strip().replace("\n", "\n    ")
    (tmp_path / "app.py").write_text(f"{HEAD}if __name__ == '__main__':\n    {body}\n")
    take = "from exactum.ops.targets.sinks import given_sinks as g; print(*g('app.py:SINKS'))"
    assert python(take, cwd=tmp_path).stdout.startswith("files:")


@pytest.mark.spark
def test_spark_starts_again_after_an_import(spark: Any) -> None:
    """What was refused is allowed again, where the same process goes on."""
    assert list(given_sinks(given(kafka("a"))[1])) == ["kafka:a"]
    assert spark.sparkContext._ensure_initialized.__qualname__.startswith("SparkContext.")
    assert spark.range(3).count() == 3


def test_a_password_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", "p/w")
    assert with_password("mysql://u@h/d") == "mysql://u:p%2Fw@h/d"
    assert with_password("mysql://u:own@h/d") == "mysql://u:own@h/d"
    assert with_password("/data/decisions") == "/data/decisions"
    assert with_password(None) is None


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
    assert read_properties(file)["max.poll.records"] == "5"
    file.write_text(f"ssl.keystore.location=/x.jks\nssl.keystore.password={SECRET}\n")
    with raised(SettingRefused, "COMMAND_ARGUMENT", "ssl.keystore.location") as refused:
        client_settings_of(file)
    assert SECRET not in str(refused.value)
    with raised(SettingRefused, "COMMAND_ARGUMENT", tmp_path / "none"):
        client_settings_of(tmp_path / "none")
