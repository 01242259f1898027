"""One look at a range of epochs: records, targets, and where asked the input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import SettingRefused
from exactum.kafka.sink import KafkaSink
from exactum.ops.targets.options import QueryOptions
from exactum.ops.targets.properties_file import SERVERS, client_settings_of
from exactum.ops.targets.target import QueryTargets
from exactum.ops.verify.against_input import (
    InputReader,
    OutputReader,
    against_input,
    began,
    offsets_of,
)
from exactum.ops.verify.evidence import Evidence
from exactum.ops.verify.promise import Promise, Promises
from exactum.ops.verify.verification import EpochRange, SinkCheck, Verification, looked
from exactum.protocol.sink import DEAD_LETTERS


class RangeLook:
    """``only``: that sink alone. ``input_config``: a Kafka client's file for the input's cluster.

    Raises:
        ExactumError: the checkpoint or its list of sinks cannot be read.
    """

    def __init__(
        self,
        options: QueryOptions,
        only: str | None,
        *,
        against_input: bool,
        input_config: str | None,
    ) -> None:
        self._place = options.place()
        refuse_retired(self._place.folder)  # its records are elsewhere
        self._targets = options.targets(self._place)
        self._only = only
        self._input = _input_settings(self._targets, input_config) if against_input else None

    @property
    def query_id(self) -> str:
        return self._place.query_id

    def at(self, epochs: EpochRange, console: Console | None) -> tuple[Promises, list[Evidence]]:
        """``console``: says beforehand what it costs, and shows how far it is.

        Raises:
            ExactumError: as ``Verification``.
        """
        with Verification(self._place, self._targets, epochs) as verification:
            promises = verification.promises
            if not promises.each:
                return promises, []
            checks = list(verification.checks(self._only))
            evidence = _looked(checks, promises.each, console)
            if self._input is not None:
                evidence += self._against_input(checks, promises.each, self._input)
            return promises, evidence

    def _against_input(
        self, checks: Sequence[SinkCheck], each: Sequence[Promise], settings: dict[str, str]
    ) -> list[Evidence]:
        found: list[Evidence] = []
        reader = InputReader(settings)
        try:
            for check in checks:
                if check.name == DEAD_LETTERS:
                    continue  # what was put aside is no copy of the input
                target = self._targets.named(check.name)
                sink = None if target is None else target.sink
                requests = sink.connect() if isinstance(sink, KafkaSink) else None
                output = None if requests is None else OutputReader(requests).tally
                try:
                    for promise in each:
                        ends = offsets_of(promise.record.offsets.end)
                        start = began(promise, self._place.folder)
                        found.append(
                            against_input(
                                promise, check.name, start, ends, source=reader, output=output
                            )
                        )
                finally:
                    if requests is not None:
                        requests.close()
        finally:
            reader.close()
        return found


def _looked(
    checks: Sequence[SinkCheck], each: Sequence[Promise], console: Console | None
) -> list[Evidence]:
    if console is None:
        return [e for check in checks for e in looked(check, each, lambda done: None)]
    costs = "; ".join(f"{check.name}: {_amount(check)}" for check in checks if check.cost)
    console.print(
        f"{len(each):,} micro-batches, {len(checks)} sinks. To read: {costs or 'next to nothing'}.",
        soft_wrap=True,
        markup=False,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    found: list[Evidence] = []
    with Progress(*columns, console=console, transient=True) as bars:
        for check in checks:
            bar = bars.add_task(check.name, total=check.cost or None)
            found += looked(check, each, lambda done, bar=bar: bars.advance(bar, done))  # type: ignore[misc]
    return found


def _amount(check: SinkCheck) -> str:
    if check.unit != "bytes":
        return f"{check.cost:,} {check.unit}"
    return f"{check.cost / 1e6:,.1f} MB"


def _input_settings(targets: QueryTargets, config: str | None) -> dict[str, str]:
    """librdkafka's settings for the cluster of the input.

    Raises:
        SettingRefused: nothing says where it is.
    """
    if config is not None:
        settings = client_settings_of(Path(config))
        if SERVERS not in settings:
            raise SettingRefused(f"--input-config {config} does not say {SERVERS}.")
        return settings
    for target in targets.each:
        if isinstance(target.sink, KafkaSink):
            return dict(target.sink.client_settings)
    raise SettingRefused(
        "--against-input has to know the brokers of the input: give --input-config FILE, a Kafka "
        f"client's .properties with {SERVERS}."
    )
