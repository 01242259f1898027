"""The oracle must be able to fail: each check is fed what it exists to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.crash.oracle import (
    Checkpoint,
    CommittedReader,
    Input,
    OracleFailure,
    Seen,
    check_at_rest,
    check_epochs,
    check_exact,
    check_same,
    check_totals,
    read_all,
)
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import WAIT_MAX_S

EXPECTED = {"a": ["a1", "a2", "a3"], "b": ["b1"]}
GOOD = [
    Seen("t", 0, 0, "a", "a1"),
    Seen("t", 0, 1, "a", "a2"),
    Seen("t", 1, 0, "b", "b1"),
    Seen("t", 0, 3, "a", "a3"),
]


def test_an_exact_output_passes() -> None:
    """The checks are quiet when all is well."""
    check_exact(GOOD, EXPECTED, ["t"])
    check_same(GOOD, reversed(GOOD))


IN_TWO = [*GOOD, *(Seen("u", s.partition, s.offset, s.key, s.value) for s in GOOD[:-1])]


@pytest.mark.parametrize(
    ("seen", "topics", "said"),
    [
        ([*GOOD, Seen("t", 0, 7, "a", "a3")], ["t"], "more than once"),
        (IN_TWO, ["t", "u"], "u: 1 of 4 lost"),
        ([*GOOD, Seen("t", 1, 5, "b", "b2")], ["t"], "1 that nobody wrote"),
        ([Seen("t", 0, 5, "a", "a1"), *GOOD[1:]], ["t"], "comes after"),
        ([*GOOD[:-1], Seen("t", 1, 9, "a", "a3")], ["t"], "partitions"),
    ],
    ids=["a duplicate", "a loss", "a foreign record", "a reorder", "a key in two partitions"],
)
def test_what_is_not_exact_is_found(seen: list[Seen], topics: list[str], said: str) -> None:
    """A value at two offsets, missing in one of two topics, of nobody, or out of its key's order."""
    with pytest.raises(OracleFailure, match=said):
        check_exact(seen, EXPECTED, topics)


def test_two_readers_who_differ_are_found() -> None:
    """What was visible once stays, and nothing appears among what was read already."""
    with pytest.raises(OracleFailure, match="misses"):
        check_same(GOOD, GOOD[1:])
    with pytest.raises(OracleFailure, match="sees besides"):
        check_same(GOOD[1:], GOOD)


def two_batches(folder: Path) -> tuple[Input, Checkpoint]:
    """Of one record each. The first is finished."""
    for name in ("offsets", "commits", "exactum/decisions"):
        (folder / name).mkdir(parents=True)
    for batch in (0, 1):
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"in": {{"0": {batch + 1}}}}}')
    (folder / "commits" / "0").touch()
    source = Input("in", {"a": ["n1", "n2"]}, {(0, 0): ("a", "n1"), (0, 1): ("a", "n2")}, 2)
    return source, Checkpoint(folder, "in")


def test_a_wrong_total_is_found(tmp_path: Path) -> None:
    """A total that was written twice, left out, or counted a record twice."""
    source, checkpoint = two_batches(tmp_path)
    (tmp_path / "commits" / "1").touch()
    check_totals([Seen("t", 0, 0, "a", "1:1"), Seen("t", 0, 2, "a", "2:3")], source, checkpoint)
    for wrong in (["1:1", "1:1", "2:3"], ["2:3"], ["1:1", "3:5"]):
        with pytest.raises(OracleFailure, match="instead of"):
            check_totals(
                [Seen("t", 0, n, "a", value) for n, value in enumerate(wrong)], source, checkpoint
            )


def test_an_epoch_that_is_visible_too_early_is_found(tmp_path: Path) -> None:
    """Records of an undecided epoch, and missing ones of a finished epoch."""
    source, checkpoint = two_batches(tmp_path)
    (tmp_path / "exactum" / "decisions" / "0.json").write_text(
        '{"batch_id": 0, "decision": "commit"}'
    )
    first, second = Seen("t", 0, 0, "a", "N1"), Seen("t", 0, 2, "a", "N2")
    check_epochs([first], source, checkpoint, ["t"])
    with pytest.raises(OracleFailure, match="1 records of undecided epochs"):
        check_epochs([first, second], source, checkpoint, ["t"])
    with pytest.raises(OracleFailure, match="1 of finished epochs are not"):
        check_epochs([], source, checkpoint, ["t"])


@pytest.mark.broker
def test_an_open_transaction_is_found(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction hides what lies behind it: not at rest; the reader does not see it
    either.
    """
    monkeypatch.setattr("tests.kit.crash.oracle.REST_TIMEOUT_S", 0.5)
    name = broker.topic("rest", partitions=1)
    servers = broker.servers
    check_at_rest(servers, [name], "oracle-open")
    producer = broker.transaction("oracle-open-1", name, "hidden")
    with pytest.raises(OracleFailure, match=r"open \['oracle-open-1'\].*\(0, 1\)"):
        check_at_rest(servers, [name], "oracle-open")
    assert read_all(servers, [name]) == []
    producer.abort_transaction(WAIT_MAX_S)
    monkeypatch.undo()
    check_at_rest(servers, [name], "oracle-open")
    assert read_all(servers, [name]) == []


@pytest.mark.broker
def test_the_reader_knows_when_it_has_seen_all(broker: Broker) -> None:
    """``caught_up`` returns everything that was readable at the call, also behind aborted
    records and markers.
    """
    name, servers = broker.topic("reader", partitions=2), broker.servers
    with CommittedReader(servers, [name]) as reader:
        assert reader.caught_up() == []
        source = Input(name)
        source.produce(servers, 50)
        check_exact(reader.caught_up(), source.values, [name])
        producer = broker.initialised("oracle-reader")
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(name, "last", "z", partition=partition)
            end(WAIT_MAX_S)
        check_at_rest(servers, [name], "oracle-reader")  # the markers come behind the answer
        assert [s.value for s in reader.caught_up()].count("last") == 2
