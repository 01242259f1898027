"""The decision log in the database of the sink, and the database goes back: both end with the same
batch, and only the checkpoint knows that there were later ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.checkpoint.guarantee_record import Stretch, Stretches
from exactum.checkpoint.layout import SINKS
from exactum.errors import CheckpointRefused
from exactum.spark.run.cut_log import refuse_cut_log
from exactum.spark.run.moved_log import refuse_moved_log
from tests.kit.spark.run_begin import note, run_at, without
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Query, expected
from tests.sql.test_epochs import query_on, rows_in
from tests.sql.test_gone_back import restored

PLACE = "postgresql://one/shop"


class Shop:
    """A query whose decisions lie in its sink's database, and which has run ten batches."""

    def __init__(self, database: SqlDatabase, checkpoint: Path) -> None:
        self.database, self.checkpoint = database, checkpoint
        self.table = database.table()
        self.query: Query = query_on(database, self.table, "staged")
        self.query.run(*range(10))
        self.log = database.log(self.query.query_id)
        for record in sorted(
            self.query.storage.records.values(), key=lambda r: (r.epoch.batch_id, r.attempt)
        ):
            assert self.log.decide(record) == record
        self.note(9)

    def note(self, decided: int | None, place: str = PLACE) -> None:
        note(self.checkpoint, self.query.query_id, place, decided)

    def goes_back(self, last: int, *, log_alone: bool = False) -> None:
        self.database.run("DELETE FROM exactum_decisions WHERE batch_id > %s", [last])
        records = self.query.storage.records
        for slot in [slot for slot in records if slot[1] > last]:
            del records[slot]
        if not log_alone:
            restored(self.database, self.table, last)

    def start(self, begins: int, stretches: Stretches | None = None) -> None:
        """What a start asks of the log, and the coordinator after it."""
        context = run_at(self.checkpoint, self.query.query_id, begins)
        refuse_moved_log(context, self.log, PLACE)
        driver = self.query.start()
        try:
            refuse_cut_log(context, self.log, PLACE, [driver.participant], stretches or Stretches())
        finally:
            driver.close()


@pytest.fixture
def shop(database: SqlDatabase, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database, tmp_path)
    yield made
    made.log.close()


@pytest.mark.parametrize(("last", "decided"), [(7, 9), (4, 9), (0, 9), (4, 10)])
def test_log_and_rows_are_of_the_same_older_moment(shop: Shop, last: int, decided: int) -> None:
    """Refused as often as it is tried. Also where the batch at hand was decided, and its driver
    died before Spark had logged it.
    """
    shop.note(decided)
    shop.goes_back(last)
    for _ in range(2):
        with pytest.raises(CheckpointRefused) as caught:
            shop.start(10)
        text = str(caught.value)
        assert f"{PLACE} ends with batch {last}, and it had that of batch {decided}" in text
        assert f"Sink '{shop.query.sink().name}' ends with batch {last}. " in text
        assert f"batches {last + 1} to 9 are gone from it" in text
    without("decided", shop.checkpoint / SINKS)  # as it says
    shop.start(10)
    shop.query.run(10)
    assert rows_in(shop.database, shop.table) == expected([*range(last + 1), 10])


def test_a_sink_that_lacks_nothing(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The log alone went back. The ledger tells whether the batch at hand is there."""
    shop.goes_back(4, log_alone=True)
    with caplog.at_level(logging.WARNING):
        shop.start(10)
    assert "ends with batch 4, and it had that of batch 9" in caplog.text
    assert "cannot tell of batches 5 to 9" in caplog.text


def test_a_log_that_was_emptied(shop: Shop) -> None:
    shop.goes_back(-1)
    with pytest.raises(CheckpointRefused, match="has no record at all.*up to which batch each"):
        shop.start(10)
    without("decided", shop.checkpoint / SINKS)
    shop.start(10)


def test_one_that_ends_far_before_is_not_called_empty(shop: Shop) -> None:
    shop.note(500)
    with pytest.raises(CheckpointRefused, match="ends with batch 9, .* batches 10 to 500 are gone"):
        shop.start(501)


def test_what_is_sound_goes_on(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of a log that has all that was decided: pruned, older than the note, behind a
    stretch without decisions, or of a checkpoint that was put back. Nor where it lacks the batch at
    hand alone: the ledger refuses that batch if it has it.
    """
    with caplog.at_level(logging.WARNING):
        shop.start(10)
        shop.start(9)
        shop.start(40, Stretches((Stretch(10, 40),)))
        shop.note(25)
        shop.start(10)
        shop.note(10)
        shop.start(10)
        shop.note(2)
        shop.start(10)
        shop.log.prune(5)
        shop.start(10)
    assert not caplog.records


@pytest.mark.parametrize("decided", [9, None])
def test_batches_that_nothing_on_file_calls_decided(
    shop: Shop, caplog: pytest.LogCaptureFixture, decided: int | None
) -> None:
    """Written by another sink, or passed over by the user's function. Or the checkpoint has no such
    file: then nobody can tell, and a warning names the place.
    """
    shop.note(decided)
    with caplog.at_level(logging.WARNING):
        shop.start(12)
    assert "Spark has finished batch 11, and the decision log" in caplog.text
    assert f"{PLACE} ends with batch 9" in caplog.text


def test_a_log_that_was_given_another_name_and_went_back(shop: Shop) -> None:
    """It cannot be told from one that was used before. The error says what it ends with, and the
    way out for both.
    """
    shop.note(9, "postgresql://former/shop")
    shop.start(10)
    shop.goes_back(4)
    with pytest.raises(CheckpointRefused, match="given now ends with batch 4. If it is lost for"):
        shop.start(10)
    without("decision_log", shop.checkpoint / SINKS)
    shop.start(10)
