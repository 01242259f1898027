"""Calls that are forgotten, made twice or made with the wrong thing: refused with words, before
a row is lost.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.sql import functions as f

import exactum
from exactum.errors import SettingRefused
from exactum.files.place import is_found_below
from exactum.files.slot_log import SlotLog
from exactum.storage.folder import Folder
from tests.kit.errors import check_query_error, raised
from tests.kit.opened_sink import OpenedSink
from tests.kit.spark.folder_sink import FolderSink, arm, disarm

DEEP = pytest.mark.deep
GUARANTEES = (exactum.exactly_once, exactum.at_least_once, exactum.at_most_once)
KAFKA = exactum.KafkaSink("out", bootstrap_servers="localhost:9092")
VIEW = exactum.KafkaSink("rejected", bootstrap_servers="h:1", rows=lambda batch: batch)


# ---- the call forgotten --------------------------------------------------------------------------


@pytest.mark.spark
def test_what_is_given_to_foreach_batch(query: Any) -> None:
    """The call forgotten, what starts a query, a sink: it stops the query with what to write; mended,
    every row is written.
    """
    query.give(1)
    for given, facts in (
        (exactum.exactly_once, ("SINKS_WANTED",)),
        (
            exactum.exactly_once(KAFKA).__call__,
            ("START_WANTED", "exactum.exactly_once(", "start("),
        ),
        (KAFKA, ("SINKS_WANTED", "exactum.exactly_once(KafkaSink(...)).start(")),
    ):
        check_query_error(query.run(given), SettingRefused, *facts)
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1]


@pytest.mark.parametrize(
    "sink",
    [
        exactum.FileSink("/tmp/never"),
        exactum.PostgresSink("postgresql://u:p@localhost/d", table="t"),
        exactum.MySQLSink("mysql://u:p@localhost/d", table="t"),
        exactum.WriteAheadSink(print),
    ],
    ids=lambda sink: type(sink).__name__,
)
def test_a_sink_is_no_function(sink: Any) -> None:
    with raised(SettingRefused, "SINKS_WANTED", f"exactly_once({type(sink).__name__}(...)).start("):
        sink(None, 0)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda g: g.__name__)
@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        ((), "SINKS_WANTED", "exactum.KafkaSink("),
        (("out",), "SINKS_WANTED", "'out' (str)"),
        ((None,), "SINKS_WANTED", "None (NoneType)"),
        (({"topic": "x"},), "SINKS_WANTED", "{'topic': 'x'} (dict)"),
        ((lambda frame, batch_id: None,), "SINKS_WANTED", "(function)"),
        ((exactum.KafkaSink,), "SINKS_WANTED", "KafkaSink(...)"),
        ((exactum.exactly_once,), "SINKS_WANTED", "exactly_once"),
        (([KAFKA],), "SINKS_WANTED", "(*sinks)"),
        ((KAFKA, KAFKA), "SINK_TWICE", repr(KAFKA)),
        ((KAFKA, 7), "SINKS_WANTED", "7 (int)"),
        (("x" * 10_000,), "SINKS_WANTED", "..."),
    ],
    ids=lambda value: None if isinstance(value, str) else "arguments",
)
def test_what_is_no_sink(guarantee: Any, arguments: Any, code: str, fact: str) -> None:
    """Every argument is checked when it is given, and the message says what to give instead,
    briefly.
    """
    with raised(SettingRefused, code, guarantee.__name__, fact) as caught:
        guarantee(*arguments)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("settings", "code", "fact"),
    [
        ({"dead_letters": "rejected"}, "SINKS_WANTED", "'rejected' (str)"),
        ({"dead_letters": KAFKA}, "SINK_TWICE", repr(KAFKA)),
        ({"dead_letters": VIEW}, "DEAD_LETTERS_VIEW", "rows="),
        ({"decision_log": 7}, "DECISION_LOG_ARGUMENT", "decision_log=7"),
        ({"decision_log": ""}, "DECISION_LOG_ARGUMENT", "decision_log=''"),
        ({"decision_log": SlotLog}, "DECISION_LOG_ARGUMENT", "SlotLog"),
        ({"control": "limits"}, "CONTROL_ARGUMENT", "control_stream"),
        ({"control": [KAFKA]}, "CONTROL_ARGUMENT", "control_stream"),
        ({"on_event": "log"}, "START_ARGUMENT", "on_event='log'"),
    ],
)
def test_settings_of_the_wrong_kind(settings: Any, code: str, fact: str) -> None:
    """A wrong keyword argument is refused when it is given, not when the first batch runs."""
    with raised(SettingRefused, code, "exactly_once(", fact):
        exactum.exactly_once(KAFKA, **settings)


def test_rows_that_is_no_function() -> None:
    """``rows=`` with a frame or a text in it is refused when the sink is given."""
    with raised(SettingRefused, "VIEW_ARGUMENT", "rows='amount > 3'"):
        exactum.exactly_once(exactum.KafkaSink("out", bootstrap_servers="h:1", rows="amount > 3"))  # type: ignore[arg-type]


# ---- two calls for one micro-batch ---------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("same", [True, False], ids=["one object", "two objects"])
def test_two_calls_for_one_micro_batch(query: Any, tmp_path: Path, same: bool) -> None:
    """The second call is refused, says that its rows are missing, and disturbs nothing."""
    query.give(1, 2)
    once = query.exactly_once()
    other = exactum.exactly_once(FolderSink(str(tmp_path / "other")))
    first = once.for_each_batch(checkpoint=query.checkpoint)
    second = first if same else other.for_each_batch(checkpoint=query.checkpoint)

    def write(frame: Any, batch_id: int) -> None:
        first(frame.where("v = 1"), batch_id)
        second(frame.where("v = 2"), batch_id)

    text = query.run(write)
    check_query_error(text, SettingRefused, "CALL_TWICE")
    assert query.values() == [1]
    assert not (tmp_path / "other").exists()


@pytest.mark.spark
def test_a_second_try_after_a_failure(query: Any) -> None:
    """A function that catches the error and calls again is refused: nobody knows what the first
    call has decided.
    """
    query.give(1)
    once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)

    def write(frame: Any, batch_id: int) -> None:
        try:
            once(frame.selectExpr("k", "raise_error('no') AS v"), batch_id)
        except Exception:
            once(frame, batch_id)

    check_query_error(query.run(write), SettingRefused, "ERROR_CAUGHT", "micro-batch 0")
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("reason", "lost", "log"),
    [
        ("a row", 1, "ends with batch 0"),
        ("the target is down", 0, "has no batch of it"),
        ("another checkpoint", 0, "has no batch of it"),
    ],
    ids=["a row", "the target is down", "another checkpoint"],
)
def test_an_error_that_is_caught(
    query: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: str, lost: int, log: str
) -> None:
    """A function that catches exactum's error, of a batch's rows or of the run's opening, loses that
    batch, for Spark logs it as done; the next ends the query. A start behind it is refused until a
    person accepts that.
    """
    for value in range(6):
        query.give(value)
    caught: list[str] = []

    def fails_once(frame: Any) -> Any:
        return frame.withColumn("v", f.expr("IF(v = 1, raise_error('no'), v)"))

    of_rows = reason == "a row"
    sink = FolderSink(str(query.out), rows=fails_once if of_rows else None)
    place = tmp_path / "other" if reason == "another checkpoint" else query.checkpoint
    once = exactum.exactly_once(sink).for_each_batch(checkpoint=place)
    arm(query.out, "open", kind="unavailable", times=0 if of_rows else 1)
    # An opening that is tried again at the same batch meets what the first try did.
    tries = 1 if of_rows else 2

    def write(frame: Any, batch_id: int) -> None:
        for _ in range(tries):
            try:
                once(frame, batch_id)
            except Exception as error:
                caught.append(str(error))

    query.run(write)
    disarm(query.out)
    assert len(caught) == 2 * tries and len(set(caught[:tries])) == 1, caught
    told = caught[tries]
    assert "[ERROR_CAUGHT]" in told and caught[0] in told
    assert f"of micro-batch {lost}," in told and f"of micro-batch {lost + 1} " in told
    logged = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert any("[ERROR_CAUGHT]" in message for message in logged)
    refused = re.search(
        rf"cannot go on with batch ([{lost + 1}{lost + 2}]): the decision log {log}",
        query.run(query.exactly_once()) or "",
    )
    assert refused, "the loss was passed over"
    assert query.values() == [*range(lost)]
    query.accept(int(refused[1]))
    assert query.run(query.exactly_once()) is None
    stands = [*range(lost), *range(lost + 1, 6)]
    assert query.values() in (stands, [v for v in stands if v != lost + 1]), (
        "Spark may log the batch at hand as done as well"
    )


@pytest.mark.spark
def test_an_opening_that_fails_is_tried_again(query: Any) -> None:
    """Where the error reaches Spark nothing is lost: the next run, of the same function, begins
    with the same batch.
    """
    query.give(1)
    arm(query.out, "open", kind="unavailable")
    once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    assert "[ERROR_CAUGHT]" not in (query.run(once) or "")
    assert query.error is not None
    disarm(query.out)
    assert query.run(once) is None
    assert query.values() == [1]


@pytest.mark.spark
def test_the_number_of_another_batch(query: Any) -> None:
    """A number that is not that of the batch at hand is refused: its record would be another
    batch's.
    """
    query.give(1)
    query.give(2)
    once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    for wrong in (-1, 100):
        text = query.run(lambda frame, batch_id, wrong=wrong: once(frame, batch_id + wrong))
        check_query_error(text, SettingRefused, "CALL_OTHER_BATCH", "micro-batch 0")
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]


@pytest.mark.spark
def test_calls_at_the_same_time(query: Any) -> None:
    """Of two calls at once for a batch one is refused, and its rows are not taken for written."""
    query.give(1, 2)
    once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    refused: list[Exception] = []

    def write(frame: Any, batch_id: int) -> None:
        def call(value: int) -> None:
            try:
                once(frame.where(f"v = {value}"), batch_id)
            except SettingRefused as error:
                refused.append(error)

        threads = [InheritableThread(target=call, args=(value,)) for value in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        raise ValueError("both were called")

    assert "both were called" in (query.run(write) or "")
    assert [error.args[0] for error in refused] == ["CALL_TWICE"]
    assert len(query.values()) == 1


# ---- things that are shared ----------------------------------------------------------------------


@pytest.mark.spark
def test_two_queries_with_one_function(query: Any, tmp_path: Path) -> None:
    """A function is for the query of its checkpoint: the other one is refused, the first goes on."""
    once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    query.give(1)
    first = query.start(once, processingTime="0 seconds")
    first.processAllAvailable()
    query.checkpoint = tmp_path / "other"
    check_query_error(query.run(once), SettingRefused, "CHECKPOINT_OTHER")
    query.give(2)
    first.processAllAvailable()
    first.stop()
    assert query.values() == [1, 2]


@pytest.mark.spark
def test_two_sinks_on_one_target(query: Any, tmp_path: Path) -> None:
    """Two sinks that would write the same rows to one place, or a sink and its dead letters, are
    refused, however the place is spelled.
    """
    query.give(1)
    folder = tmp_path / "lake"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    one, again = (exactum.FileSink(to, format="json") for to in (folder, tmp_path / "link"))
    for once in (exactum.exactly_once(one, again), exactum.exactly_once(one, dead_letters=again)):
        text = query.run(once)
        check_query_error(text, SettingRefused, "TARGET_SHARED", f"folder {folder}")
    assert list(folder.glob("part-*")) == []


@pytest.mark.spark
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(k, marks=DEEP) for k in ("files", "dead letters", "checkpoint")), "staging"],
)
def test_a_folder_within_a_sink_s(query: Any, tmp_path: Path, kind: str) -> None:
    """Readers of a folder find what lies below it as well, unless its name tells them not to look."""
    query.give(1)
    folder = tmp_path / "lake"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)

    def run(name: str) -> Any:
        within = tmp_path / "link" / name
        if kind == "checkpoint":
            query.checkpoint = within
            return query.run(exactum.exactly_once(exactum.FileSink(folder, format="json")))
        if kind == "staging":
            query.checkpoint = tmp_path / f"checkpoint-{name}"
            sink = exactum.FileSink(folder, format="json")
            return query.run(exactum.exactly_once(sink, staging=within))
        other = exactum.FileSink(within, format="json")
        settings = {"dead_letters": other} if kind == "dead letters" else {}
        sinks = [exactum.FileSink(folder, format="json"), *([] if settings else [other])]
        query.checkpoint = tmp_path / f"checkpoint-{name}"
        return query.run(exactum.exactly_once(*sinks, **settings))

    text = run("inner")
    check_query_error(text, SettingRefused, "FOLDER_WITHIN", f"{folder}/inner")
    assert list(folder.glob("**/part-*")) == []
    assert run("_inner") is None
    assert [f.read_text() for f in folder.glob("part-*")] == ['{"k":"o","v":1}\n']


def test_what_readers_of_a_folder_find() -> None:
    """As Spark does: names with a point or an underscore are passed over, partitions are not."""
    for place, found in {
        "/lake": False,
        "/lake/a": True,
        "/lake2/a": False,
        "/lake/_a/b": False,
        "/lake/a/.b": False,
        "/lake/_day=1/a": True,
        "": False,
    }.items():
        assert is_found_below("/lake", place) == found, place
    assert is_found_below("/", "/a") and not is_found_below("", "/a")
    assert is_found_below("s3://lake/rows", "s3a://lake/rows/checkpoint")


@pytest.mark.spark
def test_two_parts_of_a_batch_on_one_target(query: Any, tmp_path: Path) -> None:
    """Two sinks with views of their own may share a target."""
    query.give(1, 2)
    folder = tmp_path / "lake"
    sinks = [
        exactum.FileSink(folder, format="json", name=part, rows=exactum.Rows(part))
        for part in ("v = 1", "v = 2")
    ]
    assert query.run(exactum.exactly_once(*sinks)) is None
    assert sorted("".join(file.read_text() for file in folder.glob("part-*")).splitlines()) == [
        '{"k":"e","v":2}',
        '{"k":"o","v":1}',
    ]


class Inbox:
    """A target that keeps what was sent, and dedupes nothing."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.fails = False

    def send(self, batch: Any, key: str) -> None:
        if self.fails:
            raise ConnectionResetError("the target hung up")
        self.received += batch["v"].to_pylist()


@pytest.mark.spark
def test_sinks_that_only_their_order_would_tell_apart_need_names(query: Any) -> None:
    """What one of them has decided would go to the other one's target, where a start has them in
    another order. With names it goes where it belongs.
    """
    crm, mail = Inbox(), Inbox()
    crm.fails = True

    def sinks(*names: str | None) -> list[Any]:
        settings: dict[str, Any] = {"tries_max": 1, "backoff_ms": 1}
        views = (lambda batch: batch.where("v < 10"), lambda batch: batch.where("v >= 10"))
        return [
            exactum.WriteAheadSink(inbox.send, name=name, rows=rows, **settings)
            for inbox, name, rows in zip((crm, mail), names, views, strict=True)
        ]

    query.give(1, 2, 11)
    refused = query.run(query.exactly_once(*sinks(None, None))) or ""
    check_query_error(refused, SettingRefused, "SINK_NAME_TWICE", "'WriteAheadSink'", "name=")
    assert "hung up" in (query.run(query.exactly_once(*sinks("crm", "mail"))) or "")
    crm.fails = False
    assert query.run(query.exactly_once(*reversed(sinks("crm", "mail")))) is None
    assert (sorted(crm.received), mail.received) == ([1, 2], [11])


@pytest.mark.postgres
def test_a_sink_learns_nothing_of_a_query(
    postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another query asks a sink between a query's own two questions changes nothing for it."""
    sink = exactum.PostgresSink(postgres.url, table="learned")
    columns, ask = (("a", "bigint"), ("b", "bigint")), sink.check_columns

    def asked_by_two(own: Any) -> None:
        for each in (own, columns[:1]):
            ask(each)

    monkeypatch.setattr(sink, "check_columns", asked_by_two)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE learned (a bigint, b bigint)")
        with OpenedSink(sink, columns, staging=Folder(tmp_path)) as own:
            own.write(pa.record_batch({"a": [1], "b": [2]}))
        assert connection.execute("SELECT a, b FROM learned").fetchall() == [(1, 2)]
