"""What is looked at: made of the options and of what they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import QueryPlace
from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import SettingRefused
from exactum.files.sink import FileSink
from exactum.kafka.examination import KafkaTarget
from exactum.kafka.settings.connection_settings import security_settings
from exactum.kafka.sink import KafkaSink
from exactum.lake.sink import TableSink
from exactum.ops.doctor import (
    checkpoint,
    decision_log,
    file_sinks,
    kafka_cluster,
    machine,
    mysql,
    postgres,
    staging,
)
from exactum.ops.doctor.examination import Examined
from exactum.ops.doctor.kafka_cluster import ClusterSubject
from exactum.ops.problem import Problem, error, ok, unknown
from exactum.ops.targets.given_sinks import given_sinks
from exactum.ops.transactions.places import ClusterPlace
from exactum.protocol.sink import Sink
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address


@dataclass(frozen=True)
class DoctorSubject:
    """``longest_outage_s``: None where nobody said."""

    checkpoint: str | None = None
    decision_log: str | None = None
    staging: str | None = None
    source: ClusterPlace | None = None
    sinks: str | None = None
    inputs: tuple[str, ...] = ()
    group: str | None = None
    longest_outage_s: float | None = None

    def areas(self) -> list[Examined]:
        """Everything to look at, in the order in which it is told.

        Raises:
            SettingRefused: topics or a group are given, and nothing says on which cluster; or as
                ``given_sinks``.
        """
        sinks = {} if self.sinks is None else given_sinks(self.sinks)
        clusters = self._clusters(sinks)
        found = [Examined(machine.AREA, machine.findings)]
        if self.checkpoint is not None:
            look = partial(checkpoint.findings, self.checkpoint, self.decision_log)
            found.append(Examined(checkpoint.AREA, look, makes=True))
        if self.checkpoint is not None or self.decision_log is not None:
            look = partial(decision_log.findings, self.decision_log, self.checkpoint)
            found.append(Examined(decision_log.AREA, look, makes=True))
        waits = self.checkpoint is not None and any(isinstance(s, SqlSink) for s in sinks.values())
        if waits or self.staging is not None:
            look = partial(staging.findings, self.checkpoint, self.staging, sinks)
            found.append(Examined(staging.AREA, look, makes=True))
        if self.checkpoint is not None and self.sinks is None:
            found.append(Examined("sinks", partial(_not_given, self.checkpoint)))
        for cluster in clusters:
            look = partial(kafka_cluster.findings, cluster, self.longest_outage_s)
            found.append(Examined(cluster.area, look))
        for address, targets in _by_address(sinks).items():
            of_server = postgres if address.where.startswith("postgres") else mysql
            found.append(Examined(address.where, partial(of_server.findings, address, targets)))
        return [*found, *_others(sinks)]

    def _clusters(self, sinks: Mapping[str, Sink]) -> list[ClusterSubject]:
        found: dict[tuple[object, ...], ClusterSubject] = {}
        targets = [KafkaTarget.of(sink) for sink in sinks.values() if isinstance(sink, KafkaSink)]
        place = self.source
        if place is None and (self.inputs or self.group is not None):
            if not targets:
                raise SettingRefused(
                    "COMMAND_ARGUMENT",
                    "--topic and --group need the cluster that they are on: --bootstrap-servers "
                    "HOST:PORT, or bootstrap.servers in the file of --command-config.",
                )
            place = ClusterPlace(targets[0].bootstrap_servers, dict(targets[0].settings))
        if place is not None:
            settings = security_settings(place.settings)
            source = ClusterSubject(place.servers, settings, self.inputs, self.group)
            found[place.servers, settings] = source
        for target in targets:
            key = (target.bootstrap_servers, target.settings)
            one = found.get(key, ClusterSubject(target.bootstrap_servers, target.settings))
            found[key] = replace(one, sinks=(*one.sinks, target))
        return list(found.values())


def _by_address(sinks: Mapping[str, Sink]) -> dict[Address, list[SqlSink]]:
    found: dict[Address, list[SqlSink]] = {}
    for sink in sinks.values():
        if isinstance(sink, SqlSink):
            found.setdefault(sink.address, []).append(sink)
    return found


def _not_given(checkpoint: str) -> Iterator[Problem]:
    """Sinks that the query on this checkpoint has had."""
    folder = local_folder(checkpoint)
    if folder is None or not (folder / "metadata").exists():
        return
    names = QueryPlace.of(folder).record().present
    if names:
        yield unknown(
            "sinks",
            f"Not looked at: {', '.join(sorted(map(repr, names)))}.",
            "Servers, tables and folders are tried with the sinks themselves.",
            "Give them by --sinks FILE.py:NAME, or set EXACTUM_SINKS.",
        )


def _others(sinks: Mapping[str, Sink]) -> Iterator[Examined]:
    for name, sink in sinks.items():
        if isinstance(sink, FileSink):
            yield Examined(name, partial(file_sinks.findings, sink), makes=True)
        elif isinstance(sink, TableSink):
            yield Examined(name, partial(_of_a_table, name, sink))
        elif not isinstance(sink, KafkaSink | SqlSink | WriteAheadSink):
            yield Examined(name, partial(_of_your_own, name, sink))


def _of_a_table(name: str, sink: TableSink) -> Iterable[Problem]:
    try:
        is_there = sink.examine()
    except SettingRefused as refusal:
        yield error(name, str(refusal), "", "")
    else:
        what = "The table can be written to." if is_there else "There is no table yet."
        yield ok(name, what)


def _of_your_own(name: str, sink: Sink) -> Iterable[Problem]:
    yield ok(
        name,
        f"{type(sink).__name__} is a class of your own: it was not tried. "
        "exactum.testing.check_two_phase_commit_sink crashes it at every call.",
    )
