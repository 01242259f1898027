"""What each commit has to show is not left to ``make deep``, and has planted faults: see
``tests.planted``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.kit.environment import ROOT
from tests.planted import fault as row
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

FAULTS_MIN = 40

SHOWN: Mapping[str, Sequence[str]] = {
    row.DRIVER: (
        "protocol/test_guarantees.py::test_a_run_dies_and_another_goes_on",
        "crash/test_interleaved.py::test_a_driver_held_at_any_step_does_no_harm",
    ),
    row.TASK: (
        "spark/test_exactly_once.py::test_a_task_that_fails_once",
        "spark/test_exactly_once.py::test_what_a_cancelled_task_still_writes_is_swept",
    ),
    row.NEWER: ("protocol/test_coordinator.py::test_an_older_incarnation_is_fenced_and_cleans_up",),
    row.FROZEN: ("run/test_lives.py::test_a_standby_takes_over_from_the_dead_and_from_the_frozen",),
    row.LATE: (
        "crash/test_unverified.py::test_a_task_that_outlives_its_driver_holds_no_reader_back",
    ),
    row.POWER: ("spark/test_power_cut.py::test_offsets_that_a_power_cut_took_are_written_again",),
    row.ANOTHER: (
        "kafka/test_participant.py::test_an_abort_never_hits_a_later_transaction_of_the_same_id",
        "kafka/test_producer_pool.py::test_each_has_an_epoch_of_its_own_and_knows_it_at_once",
    ),
    row.OTHERS: ("kafka/test_transactional_id.py::test_what_only_begins_alike_is_not_ours",),
    row.UNKNOWN: (
        "kafka/test_outcome.py::test_the_coordinator_is_believed_only_where_it_speaks_of_this_very_transaction",
        "kafka/test_outcome.py::test_the_log_decides_where_the_coordinator_cannot",
    ),
    row.ALL_ROWS: (
        "kafka/test_participant.py::test_verify_finds_a_missing_record",
        "kafka/test_lost_log.py::test_records_that_were_lost_while_their_task_wrote_on",
    ),
    row.TIMED_OUT: (
        "kafka/test_participant.py::test_what_is_salvaged_comes_back_to_its_partitions",
        "crash/test_salvage.py::test_all_records_come_back",
    ),
    row.ORDER: ("source/test_kafka_to_kafka.py::test_the_order_within_a_key",),
    row.FORMER: ("spark/test_former_sinks.py::test_a_kafka_sink_that_was_replaced",),
    row.FORK: (
        "savepoint/test_restore.py::test_two_forks_at_once",
        "savepoint/test_restore.py::test_a_moved_query_never_goes_back",
    ),
    row.OTHER_BATCH: (
        "spark/test_power_cut.py::test_other_files_are_not_taken_for_those_of_a_decided_batch",
    ),
    row.RECREATED: ("source/test_topics.py::test_topic_made_anew_with_fewer_records",),
    row.GROUP: ("source/test_group.py::test_a_refused_start_moves_nothing",),
    row.BAD_RECORD: (
        "decoding/test_policies.py::test_skipped_records_are_counted_in_each_epoch",
        "decoding/test_policies.py::test_fail_names_the_record_and_leaves_nothing",
    ),
    row.AVRO: (
        "decoding/test_avro_pairs.py::test_each_written_type_is_read_with_its_value_or_is_bad",
    ),
    row.AS_IT_WAS: (
        "abuse/test_odd_records.py::test_each_record_is_there_or_put_aside",
        "abuse/test_kafka_rows.py::test_many_rows",
        "abuse/test_file_rows.py::test_many_rows_of_every_type",
        "abuse/test_sql_values.py::test_what_a_column_does_not_take_is_refused_before_the_first_row",
    ),
    row.LOADED: (
        "spark/test_load.py::test_it_is_written_once_by_its_id",
        "spark/test_load.py::test_a_used_id_is_refused_for_other_rows",
    ),
    row.NOT_WRITTEN: (
        "spark/test_misuse.py::test_two_calls_for_one_micro_batch",
        "spark/test_misuse.py::test_the_number_of_another_batch",
    ),
    row.STATE: (
        "spark/test_decided_epoch.py::test_as_without_the_crash",
        "spark/test_void_attempts.py::test_those_that_are_loaded_do_no_harm",
        "spark/test_unsteady_queries.py::test_what_was_said_stays",
    ),
    row.LOST_STATE: ("spark/test_recomputed_epoch.py::test_another_result_is_refused",),
    row.LOST: (
        "protocol/test_ends.py::test_decisions_are_gone",
        "spark/test_older_checkpoint.py::test_kafka_has_more_than_the_checkpoint",
    ),
    row.OLD_RUN: ("contract/test_log.py::test_zombies_never_get_a_pruned_slot",),
    row.STORE: ("files/test_decision_log.py::test_a_store_that_takes_every_put_is_refused",),
    row.METADATA: ("spark/test_refusals.py::test_a_checkpoint_with_the_metadata_of_another_query",),
}
"""Of each row, the tests below tests/ that show it at each commit. What else shows it may be deep."""


def rows() -> Iterator[tuple[str, list[str]]]:
    """What a row of docs/guarantees.md promises, and the paths that it names."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    tables = page.partition("## What holds, and how")[2].partition("## By sink")[0]
    for what, shown_by in re.findall(r"^\| ([^|]+) \|[^|]+\|([^|]+)\|$", tables, re.MULTILINE):
        if what != "what holds":
            yield re.sub(r"\[(.+)\]\(.+\)", r"\1", what), re.findall(r"`([^`]+)`", shown_by)


@cache
def is_played(path: str) -> bool:
    """Whether ``make test`` plays a test of this file or folder."""
    place = ROOT / path
    files = [place] if place.is_file() else place.rglob("test_*.py")
    return any(plays(file) for file in files)


def plays(file: Path) -> bool:
    return bool(played_tests(file))


@cache
def played_tests(file: Path) -> Sequence[str]:
    """The names of the file's tests, and classes of tests, that ``make test`` plays."""
    body = ast.parse(file.read_text()).body
    marks = [n.value for n in body if isinstance(n, ast.Assign) and "pytestmark" in names(n)]
    if is_deep(marks):
        return ()
    return [n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and is_test(n)]


def is_test(node: ast.stmt) -> bool:
    """One that is not deep; a class has those of a contract, or its own."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("test_") and not is_deep(node.decorator_list)
    if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
        inherited = bool(node.bases) or any(is_test(inner) for inner in node.body)
        return inherited and not is_deep(node.decorator_list)
    return False


def names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def is_deep(marks: list[ast.expr]) -> bool:
    """A single deep variant is within ``pytest.param``."""
    return any(re.search(r"(?<!marks=)\bpytest\.mark\.deep", ast.unparse(mark)) for mark in marks)


def test_each_row_of_the_guarantees_is_shown() -> None:
    """By tests that are played at each commit, and stand where the page says."""
    found = dict(rows())
    assert found.keys() == SHOWN.keys()
    for what, tests in SHOWN.items():
        for test in tests:
            file, _, name = f"tests/{test}".partition("::")
            assert name in played_tests(ROOT / file), f"{what}: {test}"
            assert any(f"{file}/".startswith(f"{path}/") for path in found[what]), (
                f"{what}: {test} is not in {found[what]}"
            )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_planted_fault_stands_in_the_sources_and_can_be_seen(fault: Fault) -> None:
    ast.parse(fault.plant((ROOT / "src" / "exactum" / fault.file).read_text()))
    assert all(is_played(test.split()[0]) for test in fault.tests)


def test_each_row_of_the_guarantees_has_a_planted_fault() -> None:
    assert {what for what, _ in rows()} == {fault.row for fault in FAULTS}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= FAULTS_MIN
