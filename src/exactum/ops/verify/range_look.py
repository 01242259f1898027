"""One look at a range of epochs: records and targets."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from exactum.checkpoint.retirement import refuse_retired
from exactum.ops.targets.options import QueryOptions
from exactum.ops.verify.evidence import Evidence
from exactum.ops.verify.promise import Promise, Promises
from exactum.ops.verify.verification import EpochRange, SinkCheck, Verification, looked


class RangeLook:
    """``only``: that sink alone.

    Raises:
        ExactumError: the checkpoint or its list of sinks cannot be read.
    """

    def __init__(self, options: QueryOptions, only: str | None) -> None:
        self._place = options.place()
        refuse_retired(self._place.folder)  # its records are elsewhere
        self._targets = options.targets(self._place)
        self._only = only

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
            return promises, _looked(checks, promises.each, console)


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
