"""Fixtures that every test may use: one real server of each kind for the whole run, topics on the
broker, and a database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pyspark.sql import SparkSession

import exactum
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from exactum.local import broker as local_broker
from exactum.testing.faults import EVERY_VARIABLE
from tests.kit.environment import python_path
from tests.kit.kafka.broker import Broker
from tests.kit.memory import memory_folder
from tests.kit.played import KEPT, Played, evidence, passed, results
from tests.kit.security.rights import forget_all
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.servers.shared import (
    Address,
    RunServers,
    SharedKafka,
    SharedPostgres,
    asked,
    started_kafka,
    started_postgres,
)

TopicFactory = Callable[..., str]

# Spark's Python workers, too, find the modules of the tests.
os.environ["PYTHONPATH"] = python_path()
# The tests' Spark drivers are many and live for seconds: start fast rather than run fast.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SMALL_OPTIONS))


# An example is late when its machine is busy, not when it is wrong.
hypothesis_settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("busy machine")


RANGES = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--resume", action="store_true", help="leave out what has passed on the same sources"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A port is found free seconds before a server takes it: the test processes look in ranges
    of their own.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{RANGES - 1}").removeprefix("gw"))
    span = (local_broker.PORT_MAX - local_broker.PORT_MIN) // RANGES
    local_broker.PORT_MIN += number % RANGES * span
    local_broker.PORT_MAX = local_broker.PORT_MIN + span
    if config.getoption("resume"):
        before = getattr(config, "workerinput", {}).get("played")
        file = results() if before is None else None
        kept = [test for each in KEPT.values() for test in evidence(each)]
        played = Played([*kept, *passed(file)] if file else before, file)
        config.pluginmanager.register(played, "played")


RUN_SERVERS = pytest.StashKey[RunServers]()
"""In the process that deals out the tests."""


SHARING = "loadfile"
"""The --dist with which processes share servers: names that are fixed in a file are used once at a
time.
"""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    config = node.config
    if played := config.pluginmanager.get_plugin("played"):
        node.workerinput["played"] = sorted(played.before)
    if config.getoption("dist") == SHARING:
        if RUN_SERVERS not in config.stash:
            config.stash[RUN_SERVERS] = RunServers()
        node.workerinput["servers"] = config.stash[RUN_SERVERS].address


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay together, and so do all of a server that one process has."""
    if config.getoption("dist") != SHARING:
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return server_of(nodeid) or target_of(nodeid) or super()._split_scope(nodeid)

    return ByServer(config, log)


OF_ONE_PROCESS = {
    "mariadb": re.compile(
        "mariadb|mysql|sql/test_failure|tests/targets/|test_killed_driver|classic_job|"
        "another_kind_of_server|host_by_an_option",
        re.IGNORECASE,
    ),
    "secured_kafka": re.compile("tests/security/|doctor/test_rights|test_users_"),
}
"""Fixtures of servers that one process has, and the names of their tests: MariaDB has one list of
prepared transactions for the whole server, and tests count them; and of rights too.
"""


def server_of(nodeid: str) -> str | None:
    """The process that deals out the tests knows only their names."""
    return next((name for name, own in OF_ONE_PROCESS.items() if own.search(nodeid)), None)


def target_of(nodeid: str) -> str | None:
    """Of a test that is played over each kind of target: those of one kind stay together."""
    kinds = "kafka|postgres|folder|objects|delta|iceberg|two|write"
    found = re.search(rf"tests/contract/.*\[.*\b({kinds})\b", nodeid)
    return found and f"contract of {found[1]}"


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUN_SERVERS in config.stash:
        config.stash[RUN_SERVERS].close()


def address_of_servers(config: pytest.Config) -> Address | None:
    """Of those that the run's processes share; None: this one has its own."""
    found: Address | None = getattr(config, "workerinput", {}).get("servers")
    return found


LONG = (
    "contract",
    "standalone",
    "run",
    "savepoint",
    "state",
    "cluster",
    "chaos",
    "crash",
    "decoding",
    "spark",
    "source",
    "security",
    "files",
    "sql",
    "kafka",
    "ops",
)
"""Folders whose files take long."""


SERVER_OF = {
    "kafka": "broker",
    "secured_kafka": "broker",
    "spark": "spark",
    "postgres": "postgres",
    "mariadb": "mariadb",
}
"""The fixtures that start a server, and the marks of the tests that use them."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks for the servers that a test uses. Those of a server that one process has, and then the
    long ones first: what is left at the end is short, and the processes of ``make test`` end
    together.
    """
    leave_variants_to_deep(items)
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in SERVER_OF:
                item.add_marker(SERVER_OF[fixture])
            if fixture in OF_ONE_PROCESS and server_of(item.nodeid) != fixture:
                raise pytest.UsageError(f"{item.nodeid} uses {fixture}: OF_ONE_PROCESS lacks it")
    items.sort(key=place_in_line)


def place_in_line(item: pytest.Item) -> int:
    if OF_ONE_PROCESS.keys() & set(getattr(item, "fixturenames", ())):
        return -1
    room = item.path.relative_to(Path(__file__).parent).parts[0]  # at whatever depth it stands
    return LONG.index(room) if room in LONG else len(LONG)


def leave_variants_to_deep(items: list[pytest.Item]) -> None:
    """Of a test marked ``variants(n)``, all but n are ``deep``: those between the first and the last
    that are left out lie evenly, so that of two parameters each value is played.
    """
    variants: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("variants") and not item.get_closest_marker("deep"):
            variants.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in variants.values():
        (count,) = same[0].get_closest_marker("variants").args
        steps = max(count - 1, 1)
        kept = {round(n * (len(same) - 1) / steps) for n in range(count)}
        for number, item in enumerate(same):
            if number not in kept:
                item.add_marker(pytest.mark.deep)


DESCRIPTORS_MAX = 900


@pytest.fixture(scope="module", autouse=True)
def no_descriptors_are_left() -> Iterator[None]:
    """py4j waits by select(), which takes 1,024 descriptors: with more, a JVM's call of Python
    is never answered.
    """
    yield
    held = os.listdir("/proc/self/fd")
    assert len(held) < DESCRIPTORS_MAX, (
        f"this process holds {len(held)} open files, sockets and pipes"
    )


SHARED = pytest.StashKey[tuple[SparkSession, dict[str, str]]]()
"""The session that all tests of a process share, once one of them has asked for it, and its
settings. The active one may be that of a micro-batch."""


@pytest.fixture(scope="module", autouse=True)
def session_is_left_as_found(pytestconfig: pytest.Config) -> Iterator[None]:
    """A setting that a file leaves in the session fails that file, and not a later one, which
    differs from run to run.
    """
    yield
    if SHARED in pytestconfig.stash:
        left = put_back(*pytestconfig.stash[SHARED])
        assert not left, f"left in the session that all files share: {left}"


def put_back(session: SparkSession, before: Mapping[str, str]) -> dict[str, str]:
    """Give the session the settings that it had before, and return those that it had instead. Its
    name is left out, which each ``local_session`` gives it anew.
    """
    left = {
        name: value
        for name, value in session.conf.getAll.items()
        if before.get(name) != value and name != "spark.app.name"
    }
    for name in left:
        if name in before:
            session.conf.set(name, before[name])
        else:
            session.conf.unset(name)
    return left


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[LocalKafka]:
    """One broker for the run. A missing Java or jar is an error here, never a skip."""
    if address := address_of_servers(pytestconfig):
        yield SharedKafka(asked(address, "kafka"))
    else:
        with started_kafka() as cluster:
            yield cluster


@pytest.fixture(scope="session")
def kafka_of_rights() -> Iterator[KafkaCluster]:
    properties = {
        "transaction.max.timeout.ms": 1_200_000,  # not Kafka's default: who may read it is told it
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    with KafkaCluster(
        security="SASL_SSL", properties=properties, jvm_options=SMALL_OPTIONS
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def secured_kafka(kafka_of_rights: KafkaCluster) -> Iterator[KafkaCluster]:
    """A broker whose clients log in, and which denies what no ACL allows: one process plays its
    tests. A file makes topics and users of its own, and finds no others' topics and rights.
    """
    yield kafka_of_rights
    forget_all(kafka_of_rights)


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[LocalPostgres]:
    """One PostgreSQL for the run, with a database for each process. A missing one is an error here,
    never a skip.
    """
    if address := address_of_servers(pytestconfig):
        yield SharedPostgres(asked(address, "postgres"))
    else:
        with started_postgres() as server:
            yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[LocalMariaDB]:
    """One MariaDB for the run: one process plays its tests. A missing one is an error here, never a
    skip.
    """
    with memory_folder() as folder, LocalMariaDB(data_dir=folder) as server:
        yield server


SEARCHES_SELDOM = {"spark.sql.streaming.pollingDelay": "50ms"}
"""A query with nothing to read asks for more each 10 ms, unless it is told otherwise."""
SNAPSHOTS_OFTEN = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": 2,
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """One Spark for the session: a process can have only one, and whoever asks for a second is
    given the first.

    It tries a failing task twice, has two shuffle partitions, and its state stores make snapshots
    often. A test that changes a setting of it puts the old one back.
    """
    session = exactum.local_session(
        "exactum-tests",
        master="local[2,2]",
        spark_sql_shuffle_partitions=2,
        **SEARCHES_SELDOM,
        **SNAPSHOTS_OFTEN,
    )
    session.sparkContext.setLogLevel("OFF")
    pytestconfig.stash[SHARED] = session, dict(session.conf.getAll)
    yield session
    del pytestconfig.stash[SHARED]
    session.stop()


@pytest.fixture(autouse=True)
def every_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps play every call, but for those marked ``sweep``: ``make deep`` runs these whole."""
    if request.node.get_closest_marker("sweep") is None:
        monkeypatch.delenv(EVERY_VARIABLE, raising=False)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: for tests in which no disk fails."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def settings_put_back(spark: SparkSession) -> Iterator[None]:
    """``local_session`` in a document gives the running session the document's settings."""
    before = spark.conf.getAll
    yield
    put_back(spark, before)


@pytest.fixture(scope="session")
def broker(kafka: LocalKafka) -> Broker:
    return Broker(kafka)


@pytest.fixture
def topic(kafka: LocalKafka) -> TopicFactory:
    """Make a topic: `topic("in", partitions=4, config={...})` returns its new, unique name."""
    return Broker(kafka).topic
