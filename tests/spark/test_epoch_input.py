"""Which records an epoch reads, said with an error about its rows."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from exactum.errors import CodeFailed, EpochAborted, ExactumError, RowsRefused, UnknownFailure
from exactum.protocol.model import SourceOffsets
from exactum.spark.live import ranges_of
from exactum.spark.run import batches
from exactum.spark.write.write_job import CANCELLED, in_our_words
from tests.kit.errors import raised as raising

OFFSETS = SourceOffsets(
    ('{"logOffset":3}', '{"orders":{"0":10,"1":7}}'),
    ('{"logOffset":4}', '{"orders":{"0":25,"1":7,"2":3}}'),
)
TEXT = "The epoch reads these offsets: orders-0 from 10 to before 25, orders-2 before 3."


def of_epoch(offsets: SourceOffsets) -> AbstractContextManager[None]:
    """As the write of an epoch with these offsets."""
    return in_our_words(lambda: batches.input_of(ranges_of(offsets)))


@pytest.mark.parametrize("kind", [RowsRefused, CodeFailed, UnknownFailure])
def test_an_error_about_rows_says_where_they_are(kind: type[Exception]) -> None:
    """The offsets of Kafka's partitions that advance; another source's are left out."""
    with pytest.raises(kind) as raised, of_epoch(OFFSETS):
        raise kind("a row is too long.")
    assert str(raised.value).removeprefix("[USER_CODE] ") == f"a row is too long. {TEXT}"


def test_other_errors_are_left_as_they_are() -> None:
    """Of other kinds, and where no source is Kafka's."""
    aborted, refused = EpochAborted("e"), RowsRefused("r")
    for error, offsets in (
        (aborted, OFFSETS),
        (refused, SourceOffsets((None,), ('{"logOffset":4}',))),
    ):
        with pytest.raises(type(error)) as raised, of_epoch(offsets):
            raise error
        assert raised.value is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [(LookupError("no such column"), UnknownFailure), (ConnectionError("gone"), EpochAborted)],
)
def test_no_error_of_a_library_is_let_through(error: Exception, kind: type[ExactumError]) -> None:
    """It is one of exactum, with its line, and the records where they may be to blame. Of an
    interruption it has the words by which Spark knows its stop.
    """
    with pytest.raises(ExactumError) as raised, of_epoch(OFFSETS):
        raise error
    assert type(raised.value) is kind
    assert f"{type(error).__name__}: {error} (at test_epoch_input.py:" in str(raised.value)
    assert str(raised.value).endswith(TEXT) is (kind is UnknownFailure)
    for name in ("java.lang.InterruptedException", "java.nio.channels.ClosedByInterruptException"):
        with raising(EpochAborted, CANCELLED), of_epoch(OFFSETS):
            raise RuntimeError(name)


def test_many_partitions() -> None:
    """The first ones, and how many more."""
    end = '{"t":{' + ",".join(f'"{n}":1' for n in range(100)) + "}}"
    text = batches.input_of(ranges_of(SourceOffsets((None,), (end,))))
    assert text.count("t-") == batches.SHOWN_MAX and "and 92 more partitions" in text
