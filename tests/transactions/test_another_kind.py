"""``dead_letters=`` is another kind of sink than before: the participant keeps its name, and the records of
before hold transactions of the other kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactum import DeltaSink, FileSink
from exactum.errors import InvariantBroken
from exactum.protocol.sink import DEAD_LETTERS, Rejection, Sink
from exactum.spark.write.dead_letter import dead_letters
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.sql.postgres_server import Database, database
from tests.kit.sql.sql_epochs import numbers
from tests.kit.transactions.operator import accept, listed, transactions, typed
from tests.kit.verify.recorded_query import RecordedQuery

__all__ = ["database"]

pytestmark = pytest.mark.broker

Make = Callable[[], Sink]


class World:
    """A query whose every batch has a row, and a letter in ``kafka`` or in the ``other`` sink."""

    def __init__(self, folder: Path, kafka: Make, other: Make) -> None:
        self.kafka, self.other = kafka, other
        self._sinks: dict[str, Any] = {
            "files": (
                lambda: FileSink(folder / "out", format="json"),
                (("v", "bigint"),),
                lambda batch_id: [[numbers(batch_id)]],
            )
        }
        self.letters_in(other)
        self.query = RecordedQuery(folder / "checkpoint", self._sinks)
        self.at = ("--checkpoint", self.query.folder)

    def letters_in(self, make: Make) -> None:
        columns = tuple(make().dead_letter_columns)
        names = [name for name, _ in columns]

        def tasks(batch_id: int) -> list[list[Any]]:
            rejection = Rejection(numbers(batch_id), ("too long",))
            return [[dead_letters(rejection, "files", names)]]

        self._sinks[DEAD_LETTERS] = make, columns, tasks

    def verified(self) -> list[str]:
        """What ``exactum verify`` finds of the letters of each batch."""
        epochs = typed("verify", *self.at, "--json", status=2).json["epochs"]
        assert all(e["finding"] == "exact" for e in epochs if e["sink"] == "files")
        return [e["finding"] for e in epochs if e["sink"] == DEAD_LETTERS]

    def nothing_is_left(self, begins: int) -> None:
        """Whatever command is asked."""
        assert listed(self.query.folder, status=0) == []
        assert "nothing is decided" in transactions("finish", *self.at, status=0).output
        assert "nothing is open" in transactions("abort", *self.at, status=0).output
        assert "nothing to accept" in accept(self.query.folder, begins)


@pytest.fixture(params=["files", "table", "lake"])
def world(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> World:
    topic = broker.topic("dead")
    makes: dict[str, Make] = {
        "files": lambda: FileSink(tmp_path / "letters", format="json"),
        "lake": lambda: DeltaSink(tmp_path / "letters"),
    }
    if request.param == "table":
        database: Database = request.getfixturevalue("database")
        makes["table"] = lambda: database.sink("letters", create_table=True)
    return World(tmp_path, lambda: broker.sink(topic), makes[request.param])


def test_to_kafka_and_back(world: World) -> None:
    """Each start goes on, and the commands tell of what the present sink has."""
    world.query.run([0])
    world.letters_in(world.kafka)
    for command in ("list", "finish", "abort"):
        told = " ".join(transactions(command, *world.at, status=2).output.split())
        assert "Give the sink by --sinks as the query had it" in told
    world.query.run([1])
    assert world.verified() == ["unknowable", "exact"]
    world.nothing_is_left(2)
    world.letters_in(world.other)
    world.query.run([2])
    assert world.verified() == ["exact", "unknowable", "exact"]
    world.nothing_is_left(3)


@pytest.mark.parametrize("back", [False, True], ids=["to kafka", "from kafka"])
def test_what_is_decided_is_the_former_sinks(world: World, back: bool) -> None:
    """A start and the commands send back to it."""
    before, after = (world.kafka, world.other) if back else (world.other, world.kafka)
    world.letters_in(before)
    world.query.run([0, 1], dies_after_decision=True)
    world.letters_in(after)
    with raised(InvariantBroken, DEAD_LETTERS, "another one before"):
        world.query.run([1])
    assert "another one before" in transactions("list", *world.at, status=2).output
    transactions("finish", *world.at, status=2)
    world.letters_in(before)
    world.query.run([1])
    world.letters_in(after)
    world.query.run([2])
    assert world.verified() == ["unknowable", "unknowable", "exact"]
