"""The rights and credentials of the Kafka sink on a real SASL_SSL broker that denies what no ACL
allows.

The rights are read from the table in docs/reference/rights.md, so that it cannot differ from what is tested.
"""

from __future__ import annotations

import gc
import json
import logging
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.kafka.producer_pool import process_pools
from exactum.kafka.settings import RECORD_BYTES_MAX
from exactum.kafka.sink import BROKER_TIMEOUT_MAX_MS, KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.sink import Guarantee
from tests.kit.kafka.transactions import OpenedSink, frame, opened, read_all
from tests.kit.security.rights import (
    SECRET,
    SECURED,
    Right,
    add_users,
    documented,
    refused,
    revoke,
)
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.sql.certificates import make_certificate
from tests.kit.transactions.operator import typed
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import await_true

pytestmark = SECURED

TOPIC, PARTITIONS = "guarded", 2
TOPIC_MESSAGE_MAX = 2_000_000
ABOVE_LIBRDKAFKAS_MAX = b"x" * 1_500_000
BROKER_TIMEOUT_MS = 1_200_000  # of the fixture secured_kafka
NAMES = {
    "output topic": ("topic", TOPIC),
    "transactional id": ("transactional_id", ""),
    "cluster": ("cluster", "kafka-cluster"),
}
"""What the table's resources are called here; the table spells out the prefix of transactional
ids.
"""
RIGHTS = documented("kafka.md", NAMES)
REFUSED = {
    ("topic", "WRITE"): (f"'{TOPIC}'", "WRITE", "topic"),
    ("topic", "READ"): (TOPIC, "READ", "topic"),
    ("transactional_id", "WRITE"): ("exactum/", "WRITE", "transactional id"),
}
"""What the error names where one right is missing."""
IMPLIED = {("topic", "DESCRIBE"), ("transactional_id", "DESCRIBE")}
"""Rights that WRITE brings along: alone, their absence changes nothing."""
DEGRADED = {("topic", "DESCRIBE_CONFIGS"), ("cluster", "DESCRIBE_CONFIGS")}
"""Rights without which a documented default is taken."""


def of_kinds(keys: Iterable[tuple[str, str]]) -> list[Right]:
    return [right for right in RIGHTS if (right.kind, right.operation) in keys]


def lacking(*missing: Right) -> str:
    """The user who has every documented right but these."""
    return "lacks-" + "-".join(str(RIGHTS.index(right)) for right in missing) if missing else "full"


TOPIC_UNSEEN = [r for r in RIGHTS if r.kind == "topic"]
IDS_UNSEEN = [r for r in RIGHTS if r.kind == "transactional_id"]
USERS = {
    lacking(*missing): missing for missing in ([], TOPIC_UNSEEN, IDS_UNSEEN, *([r] for r in RIGHTS))
}
LOSES_WRITE = "loses-write"
"""Has every documented right, until a test takes WRITE on the topic away."""
USERS[LOSES_WRITE] = []
TEAM = "team"
"""Has the documented rights, with a prefix of its own for transactional ids."""
RIGHTS_OF_TEAM = [replace(r, name=f"{TEAM}/") if r.prefixed else r for r in RIGHTS]


@pytest.fixture(scope="module")
def secure(secured_kafka: KafkaCluster) -> Iterator[KafkaCluster]:
    """With a user for each test's rights; returns when the broker enforces them."""
    cluster = secured_kafka
    cluster.create_topic(
        TOPIC, partitions=PARTITIONS, config={"max.message.bytes": TOPIC_MESSAGE_MAX}
    )
    rights = {u: [r for r in RIGHTS if r not in USERS[u]] for u in USERS}
    add_users(cluster, rights | {TEAM: RIGHTS_OF_TEAM})
    yield cluster
    # Producers that are being initialised ahead of need would hold the process up once the rights,
    # or the broker, are gone.
    for plan, pool in list(process_pools._pools.items()):
        if plan.bootstrap_servers == cluster.bootstrap_servers:
            process_pools._pools.pop(plan).close()
            pool._background.shutdown(wait=True)


def sink_of(
    cluster: KafkaCluster,
    user: str,
    *,
    topic: str | None = TOPIC,
    **changed: str,
) -> KafkaSink:
    """``changed``: client settings that differ from the right ones, with _ for the dots."""
    settings = cluster.client_settings(user) | {
        name.replace("_", "."): value for name, value in changed.items()
    }
    return KafkaSink(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        producer=settings,
    )


def plan_of(sink: OpenedSink) -> tuple[int, str | None]:
    """The transaction timeout in ms, and the largest message."""
    plan = sink.participant._plan
    return plan.transaction_timeout_ms, dict(plan.settings).get("message.max.bytes")


def committed(cluster: KafkaCluster) -> list[bytes | None]:
    """Every value that a read_committed reader sees, with no transaction left open."""
    login = cluster.client_settings("admin")
    return [r.value for r in read_all(cluster.bootstrap_servers, TOPIC, login=login)]


def test_every_documented_right_is_tested() -> None:
    """The table and this file know the same rights: none is granted untested, none tested
    ungranted.
    """
    assert {(r.kind, r.operation) for r in RIGHTS} == REFUSED.keys() | IMPLIED | DEGRADED


# ---- the documented rights are enough ----------------------------------------------------------


def test_documented_rights_are_enough(secure: KafkaCluster) -> None:
    """From open to a repeated commit, and the sweep of a crashed run's leftover, with one set of
    settings.
    """
    sink_ = sink_of(secure, lacking())
    with opened(sink_) as sink:
        assert plan_of(sink) == (BROKER_TIMEOUT_MS, str(TOPIC_MESSAGE_MAX))
        verified = sink.participant.verify(
            sink.write(frame([b"first"]), frame([ABOVE_LIBRDKAFKAS_MAX]))
        )
        assert {s.identity for s in sink.participant.list_open()} == {p.identity for p in verified}
        for _ in range(2):
            assert len(sink.participant.commit(sink.permit(verified), verified).committed) == 2
        leftover = sink.write(frame([b"leftover"]))
    with opened(sink_) as later:
        seen = later.participant.list_open()
        assert [s.identity for s in seen] == [p.identity for p in leftover]
        later.participant.abort(seen)
        later.participant.abort(seen)
        assert later.participant.list_open() == []
    values = committed(secure)
    assert (
        values.count(b"first"),
        values.count(ABOVE_LIBRDKAFKAS_MAX),
        values.count(b"leftover"),
    ) == (1, 1, 0)


def test_documented_rights_are_enough_to_salvage(secure: KafkaCluster) -> None:
    """A decided transaction that was aborted, as the broker does when its time is over, is read back
    and written again; so is its denial told.
    """
    rows = [f"salvaged-{i}".encode() for i in range(100)]
    with opened(sink_of(secure, lacking())) as sink:
        verified = sink.participant.verify(sink.write(frame(rows, rows)))
        permit = sink.permit(verified)
        sink.participant.abort(sink.participant.list_open())
        report = sink.participant.commit(permit, verified)
        assert report.expired == tuple(verified)
        with (
            opened(sink_of(secure, LOSES_WRITE)) as denied,
            refused("KAFKA_ACCESS", "WRITE", "topic"),
        ):
            revoke(secure, LOSES_WRITE, TOPIC, "WRITE")
            await_true(
                lambda: not denied.participant._requests.topics([TOPIC])[TOPIC].may("WRITE"),
                "it happens",
            )
            denied.participant.salvage(permit, report.expired)
        again = sink.participant.salvage(permit, report.expired)
        assert len(sink.participant.commit(sink.permit(again), again).committed) == 1
        assert sink.participant.list_open() == []
    assert sorted(v for v in committed(secure) if v.startswith(b"salvaged")) == sorted(rows)


def test_documented_rights_are_enough_for_a_topic_column_and_for_at_least_once(
    secure: KafkaCluster,
) -> None:
    """The sink without a topic of its own and the weaker guarantee need nothing else."""
    with opened(sink_of(secure, lacking(), topic=None)) as sink:
        sink.epoch(frame([b"routed"], topic=pa.array([TOPIC])))
    with opened(sink_of(secure, lacking()), guarantee=Guarantee.AT_LEAST_ONCE) as sink:
        assert sink.write(frame([b"plain"])) == []
    values = committed(secure)
    assert (values.count(b"routed"), values.count(b"plain")) == (1, 1)


def test_documented_rights_are_enough_for_a_prefix_of_ones_own(
    secure: KafkaCluster, tmp_path: Path
) -> None:
    """For a query with ``transactional_id_prefix``, and for the replay of its dead letters."""
    sink = lambda: KafkaSink(  # noqa: E731
        TOPIC,
        bootstrap_servers=secure.bootstrap_servers,
        transactional_id_prefix=TEAM,
        producer=secure.client_settings(TEAM),
    )
    letters = lambda: FileSink(str(tmp_path / "letters"), format="json")  # noqa: E731
    letter = {"value": [b"of a letter"], "error": ["too long"], "sink": ["guarded"]}
    query = RecordedQuery(
        tmp_path / "checkpoint",
        {
            "kafka:guarded": (sink, (("value", "binary"),), lambda n: [[frame([b"of a query"])]]),
            "dead letters": (
                letters,
                (("value", "binary"), ("error", "string"), ("sink", "string")),
                lambda n: [[pa.record_batch(letter)]],
            ),
        },
    )
    query.run([0])
    arguments = ("--checkpoint", query.folder, "--to", TOPIC, "--yes")
    typed("dead-letters", "replay", *arguments, status=0)
    values = committed(secure)
    assert (values.count(b"of a query"), values.count(b"of a letter")) == (1, 1)


# ---- one right taken away ----------------------------------------------------------------------


@pytest.mark.parametrize("missing", of_kinds(REFUSED), ids=str)
def test_a_missing_right_is_named_at_once(secure: KafkaCluster, missing: Right) -> None:
    """A person must change something: SettingRefused within seconds, with the right and the
    resource.
    """
    with refused("KAFKA_ACCESS", *REFUSED[missing.kind, missing.operation]):
        with opened(sink_of(secure, lacking(missing)), "denied") as sink:
            sink.epoch(frame([b"denied"]))
    with opened(sink_of(secure, lacking()), "denied") as sink:
        sink.participant.abort(sink.participant.list_open())
    assert b"denied" not in committed(secure)


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_topic_that_may_not_be_written_is_named_before_the_first_row(
    secure: KafkaCluster, guarantee: Guarantee
) -> None:
    """The first row of a topic of dead letters may come in a year."""
    no_write = lacking(*of_kinds([("topic", "WRITE")]))
    with (
        refused("KAFKA_ACCESS", *REFUSED["topic", "WRITE"]),
        opened(sink_of(secure, no_write), guarantee=guarantee),
    ):
        pass


@pytest.mark.parametrize("missing", of_kinds(IMPLIED), ids=str)
def test_describe_comes_with_write(secure: KafkaCluster, missing: Right) -> None:
    """As the docs say: without DESCRIBE of its own the sink works, for WRITE implies it."""
    with opened(sink_of(secure, lacking(missing))) as sink:
        sink.epoch(frame([b"implied"]))


@pytest.mark.parametrize(
    ("missing", "code", "facts"),
    [
        (TOPIC_UNSEEN, "KAFKA_TOPIC_MISSING", (f"'{TOPIC}'", "DESCRIBE")),
        (IDS_UNSEEN, "KAFKA_ACCESS", ("exactum/", "DESCRIBE", "transactional id")),
    ],
    ids=["topic", "transactional_id"],
)
def test_a_resource_without_any_right_is_named_at_once(
    secure: KafkaCluster, missing: list[Right], code: str, facts: tuple[str, ...]
) -> None:
    """Found when the query starts, before anything is written."""
    with refused(code, *facts), opened(sink_of(secure, lacking(*missing))):
        pass


def test_without_describe_configs_the_documented_defaults_hold(secure: KafkaCluster) -> None:
    """15 minutes and librdkafka's message size; a larger record is handed back with the setting
    to change.
    """
    topic, cluster = of_kinds(DEGRADED)
    with opened(sink_of(secure, lacking(cluster))) as sink:
        assert plan_of(sink) == (BROKER_TIMEOUT_MAX_MS, str(TOPIC_MESSAGE_MAX))
        sink.epoch(frame([b"degraded"]))
    with opened(sink_of(secure, lacking(topic))) as sink:
        assert plan_of(sink) == (BROKER_TIMEOUT_MS, str(RECORD_BYTES_MAX))
        sink.epoch(frame([b"degraded"]))
        sink.write(frame([ABOVE_LIBRDKAFKAS_MAX]))
        rejection = sink.rejections[-1]
        assert rejection is not None
        assert "message.max.bytes" in rejection.reasons[0]


def test_a_topic_that_a_row_names_and_the_user_may_not_see(secure: KafkaCluster) -> None:
    """To this user it does not exist: the row is handed back, and the reason says that a right
    may be missing.
    """
    secure.create_topic("unseen", partitions=1)
    with opened(sink_of(secure, lacking(), topic=None)) as sink:
        names = pa.array([TOPIC, "unseen", "never-made"])
        sink.epoch(frame([b"seen", b"unseen", b"never"], topic=names))
        rejection = sink.rejections[-1]
    assert rejection is not None
    assert rejection.rows.column("value").to_pylist() == [b"unseen", b"never"]
    assert all("lacks DESCRIBE on it" in reason for reason in rejection.reasons)
    assert committed(secure).count(b"seen") == 1


def test_a_right_lost_between_prepare_and_commit_is_named_and_the_epoch_stays_whole(
    secure: KafkaCluster,
) -> None:
    """Neither commit nor abort pretends or hangs; with the right back, the same transaction is
    committed.
    """
    no_write = lacking(*of_kinds([("transactional_id", "WRITE")]))
    with opened(sink_of(secure, lacking()), "revoked") as sink:
        verified = sink.participant.verify(sink.write(frame([b"kept"])))
        permit = sink.permit(verified)
        with opened(sink_of(secure, no_write), "revoked") as denied:
            with refused("KAFKA_ACCESS", "exactum/revoked/", "WRITE", "transactional id"):
                denied.participant.commit(permit, verified)
            seen = denied.participant.list_open()
            assert [s.identity for s in seen] == [p.identity for p in verified]
            with refused("KAFKA_ACCESS", "exactum/revoked/", "WRITE", "transactional id"):
                denied.participant.abort(seen)
        assert len(sink.participant.commit(permit, verified).committed) == 1
    assert committed(secure).count(b"kept") == 1


@pytest.mark.parametrize(
    ("missing", "right"),
    [(TOPIC_UNSEEN, "DESCRIBE"), (of_kinds([("topic", "READ")]), "READ")],
    ids=["unseen", "unread"],
)
def test_a_topic_that_a_later_run_may_not_read_back_is_named_at_once(
    secure: KafkaCluster, missing: list[Right], right: str
) -> None:
    """A sink without a topic of its own meets it only here; it does not search for leaders until
    a timeout.
    """
    with opened(sink_of(secure, lacking()), "unread") as sink:
        verified = sink.participant.verify(sink.write(frame([b"unread"])))
        with (
            opened(sink_of(secure, lacking(*missing), topic=None), "unread") as blind,
            refused("KAFKA_ACCESS", f"'{TOPIC}'", right, "topic"),
        ):
            blind.participant.salvage(sink.permit(verified), verified)
        sink.participant.abort(sink.participant.list_open())


# ---- credentials -------------------------------------------------------------------------------


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("changed", "code", "facts"),
    [
        ({"sasl_password": "guessed-staple"}, "KAFKA_LOGIN", ["sasl.password"]),
        ({"sasl_username": "nobody"}, "KAFKA_LOGIN", ["sasl.username"]),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "KAFKA_LOGIN", ["sasl.mechanism"]),
        (
            {"ssl_ca_location": "foreign"},
            "KAFKA_LOGIN",
            ["CERTIFICATE_VERIFY_FAILED", "ssl.ca.location"],
        ),
        ({"ssl_ca_location": "/nowhere/ca.pem"}, "KAFKA_SETTING", ["ssl.ca.location"]),
    ],
    ids=["password", "username", "mechanism", "authority", "no-file"],
)
def test_wrong_credentials_are_refused_at_once_and_never_shown(
    secure: KafkaCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changed: dict[str, str],
    code: str,
    facts: list[str],
) -> None:
    """The message says which setting to look at; no password in it, in its causes, or in any log
    at DEBUG.
    """
    show_all_logs(caplog)
    if changed.get("ssl_ca_location") == "foreign":  # an authority that signed nothing
        changed = {"ssl_ca_location": str(make_certificate(tmp_path)[0])}
    sink_ = sink_of(secure, lacking(), **changed)
    with refused(code, *facts) as caught, opened(sink_):
        pass
    gc.collect()  # here and not in another module's test
    secrets = [secure.client_settings(lacking())["sasl.password"], "guessed-staple"]
    shown = "".join(traceback.format_exception(caught.value)) + repr(sink_) + caplog.text
    connects = "Starting KafkaAdminClient with configuration" in caplog.text
    assert connects or "librdkafka does not take" in shown
    assert not any(secret in shown for secret in secrets)


def test_a_password_stays_out_of_logs_reprs_and_the_decision_record(
    secure: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A whole epoch and a refusal, with every log at DEBUG: nothing that is printed or kept
    shows it.
    """
    show_all_logs(caplog)
    sink_ = sink_of(secure, lacking())
    with opened(sink_, "discreet") as sink:
        verified = sink.participant.verify(sink.write(frame([b"discreet"])))
        permit = sink.permit(verified)
        sink.participant.commit(permit, verified)
        assert KafkaTransaction.of(verified[0]).transactional_id.startswith("exactum/discreet/")
        shown = [
            json.dumps(permit.record.to_json()),
            repr(sink_),
            repr(sink.opened),
            repr(sink.participant._plan),
        ]
    no_write = lacking(*of_kinds([("topic", "WRITE")]))
    with (
        refused("KAFKA_ACCESS", "WRITE") as caught,
        opened(sink_of(secure, no_write), "discreet") as sink,
    ):
        sink.write(frame([b"denied"]))
    shown += traceback.format_exception(caught.value)
    assert "Starting KafkaAdminClient with configuration" in caplog.text
    assert not any(SECRET in text for text in (*shown, caplog.text))


def show_all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("kafka", "exactum"):
        caplog.set_level(logging.DEBUG, logger=name)
