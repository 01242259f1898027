"""``exactum verify`` as somebody types it: a range, a sink, batches that are on no record though somebody asks
for them or a target has them; and what the records promise where not all batches have some.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from exactum import FileSink, PostgresSink
from exactum.checkpoint.layout import DECISIONS
from exactum.errors import InvariantBroken
from exactum.files.slot_log import SlotLog, slot_name
from exactum.monitor.decisions import SparkProgress, promises
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.protocol.sink import Guarantee
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import NO_SINKS, invoke
from tests.kit.verify.recorded_query import RecordedQuery, of_numbers


@pytest.fixture
def query(tmp_path: Path) -> RecordedQuery:
    return of_numbers(tmp_path)


def verified(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Its exit status, and what it says in JSON."""
    result = invoke("verify", "--checkpoint", folder, "--json", *more)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.stdout)


def test_an_older_copy_is_not_exact(query: RecordedQuery, tmp_path: Path) -> None:
    """What it promises is there, and the target has more."""
    query.run([0, 1])
    shutil.copytree(query.folder, tmp_path / "copy")
    query.run([2, 3])
    assert verified(query.folder)[0] == 0
    status, told = verified(tmp_path / "copy")
    assert status == 1
    assert [(e["batch_id"], e["finding"]) for e in told["epochs"]] == [
        (0, "exact"),
        (1, "exact"),
        (3, "extra"),
    ]
    assert "older copy" in told["epochs"][-1]["why"]


def test_batches_that_somebody_names(query: RecordedQuery) -> None:
    """They are all exact only if all of them are on record. Who names none wants what is there."""
    query.run(range(30))
    log = SlotLog(Folder(query.folder / DECISIONS), query.query_id)
    log.prune(25)
    log.close()
    assert verified(query.folder)[0] == 0
    assert verified(query.folder, "--from", "25", "--to", "29")[0] == 0
    status, told = verified(query.folder, "--from", "20")
    assert (status, told["forgotten_below"]) == (2, 25)
    status, told = verified(query.folder, "--to", "30")
    assert (status, told["not_begun"]) == (2, 30)
    query.run([29, 30], dies_before_decision=True)
    assert verified(query.folder)[0] == 0, "nothing is promised of it yet"
    status, told = verified(query.folder, "--to", "30")
    assert (status, told["undecided"]) == (2, [30])
    (query.folder / DECISIONS / slot_name(27, 0)).write_text("{")
    told = invoke("verify", "--checkpoint", query.folder)
    assert (told.exit_code, "[DECISION_LOG_DAMAGED]" in told.stderr) == (2, True)


def test_a_stretch_of_at_least_once(query: RecordedQuery) -> None:
    """Nothing is promised of what it wrote. What was decided before it, and the others, are looked
    at.
    """
    query.run([0, 1], dies_after_decision=True)
    query.run([1, 2], guarantee=Guarantee.AT_LEAST_ONCE)
    query.run([3, 4])
    status, told = verified(query.folder)
    assert (status, told["unrecorded"]) == (2, [2])
    assert [(e["batch_id"], e["finding"]) for e in told["epochs"]] == [
        (0, "exact"),
        (1, "exact"),
        (3, "exact"),
        (4, "exact"),
    ]
    assert verified(query.folder, "--from", "3")[0] == 0


QUERY = "query"
ABORT, COMMIT = Decision.ABORT, Decision.COMMIT


PASSED_OVER = [(0, 0, ABORT), (0, 1, COMMIT), (1, 0, COMMIT), (4, 0, ABORT), (4, 1, COMMIT)]
"""Batches 2 and 3 have no records, and a start went on behind them."""


def log_of(folder: Path, *records: tuple[int, int, Decision]) -> SlotLog:
    log = SlotLog(Folder(folder), QUERY)
    filled(log, records)
    log.close()
    return SlotLog(Folder(folder), QUERY)


def filled(log: DecisionLog, records: Sequence[tuple[int, int, Decision]]) -> None:
    for batch_id, attempt, decision in records:
        log.decide(DecisionRecord(Epoch(QUERY, batch_id), attempt, decision, "i"))


def test_a_checkpoint_that_spark_began(tmp_path: Path) -> None:
    """Batches of before have no records: exactum begins with the ABORT of its first start."""
    log = log_of(tmp_path, (5, 0, ABORT), (5, 1, COMMIT), (6, 0, ABORT))
    found = promises(log, SparkProgress(5, 5), None, None)
    assert [promise.batch_id for promise in found.each] == [5]
    assert found.forgotten_below == 5
    assert found.unrecorded == ()


@pytest.mark.parametrize(
    "records",
    [
        [(5, 0, COMMIT), (6, 0, COMMIT)],
        [(3, 0, ABORT), (3, 1, COMMIT), (5, 0, COMMIT)],
        [(0, 0, ABORT), (0, 1, COMMIT), (1, 1, COMMIT), (2, 0, ABORT), (2, 1, COMMIT)],
    ],
)
def test_records_that_are_missing(
    tmp_path: Path, records: Sequence[tuple[int, int, Decision]]
) -> None:
    """In between, or of a query that did not begin with a start."""
    log = log_of(tmp_path, *records)
    newest = max(batch_id for batch_id, *_ in records)
    with raised(InvariantBroken, tmp_path):
        promises(log, SparkProgress(newest, newest), None, None)


def test_batches_that_a_start_passed_over(tmp_path: Path) -> None:
    """Spark's own sink wrote them, say. The look goes on below them, wherever it begins."""
    log = log_of(tmp_path, *PASSED_OVER)
    for last, promised in ((None, [0, 1, 4]), (3, [0, 1]), (2, [0, 1])):
        found = promises(log, SparkProgress(4, 4), None, last)
        assert [promise.batch_id for promise in found.each] == promised
        assert found.unrecorded == ((2, 3) if last != 2 else (2,))
        assert (found.undecided, found.forgotten_below) == ((), None)


def test_batches_that_somebody_has_accepted(tmp_path: Path) -> None:
    """The log was put back: 'exactum accept' has passed over them, and no start has come since."""
    log = log_of(tmp_path, *PASSED_OVER[:-1])
    found = promises(log, SparkProgress(3, 3), None, None)
    assert [promise.batch_id for promise in found.each] == [0, 1]
    assert (found.unrecorded, found.undecided) == ((2, 3), ())


ROWS = 12
SINKS = ("json", "parquet", "csv")


@pytest.fixture
def formats(tmp_path: Path) -> RecordedQuery:
    """A sink for each format."""
    return RecordedQuery(
        tmp_path / "checkpoint",
        {
            kind: (
                lambda kind=kind: FileSink(tmp_path / kind, format=kind),  # type: ignore[misc]
                ID_AND_NAME,
                tasks_of,
            )
            for kind in SINKS
        },
    )


def typed(formats: RecordedQuery, *more: str, **env: str) -> Result:
    return invoke("verify", "--checkpoint", formats.folder, *more, env=env)


def test_a_range_and_a_sink(formats: RecordedQuery) -> None:
    """All by default; wrong arguments say what is there."""
    formats.run([0, 1, 2])
    result = typed(formats)
    assert result.exit_code == 0, result.output
    assert "0 to 2" in result.output and "Epochs by sink: 9 exact." in result.output
    some = typed(formats, "--from", "1", "--to", "2", "--sink", "json", "--json")
    assert [(e["batch_id"], e["sink"]) for e in json.loads(some.stdout)["epochs"]] == [
        (1, "json"),
        (2, "json"),
    ]
    assert "no batch from 9 to 2" in typed(formats, "--from", "9").output
    assert "'json', 'parquet', 'csv'" in typed(formats, "--sink", "nobody").output


def test_what_cannot_be_reached_is_unknowable(formats: RecordedQuery) -> None:
    """The other sinks are verified all the same, and the status says that not all is known; without
    sinks it says what was promised to which.
    """
    formats.run([0])
    away = PostgresSink("postgresql://nobody@127.0.0.1:1/none", table="verified")
    result = typed(formats, *given({**formats.sinks(), "csv": away}))
    assert result.exit_code == 2, result.output
    assert "2 exact, 1 unknowable" in result.output
    some = {name: sink for name, sink in formats.sinks().items() if name != "csv"}
    result = typed(formats, *given(some))
    assert result.exit_code == 2 and "2 exact, 1 unknowable" in result.output
    result = typed(formats, "--json", **NO_SINKS)
    assert result.exit_code == 2
    epochs = json.loads(result.stdout)["epochs"]
    assert [(e["sink"], e["promised"], e["finding"]) for e in epochs] == [
        (name, ROWS, "unknowable") for name in SINKS
    ]
    assert all("--sinks FILE.py:NAME" in e["why"] for e in epochs)
    for record in (formats.folder / "exactum" / "decisions").glob("*.json"):
        record.unlink()
    result = typed(formats)
    assert result.exit_code == 2
    assert "No record, although Spark has finished them: batch 0" in result.output
