"""Which rows cannot stand in a sink's files so that every reader finds them as they were.

All of it is known from the rows alone, before anything is decided: a file that is published can be
read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.files.partition import Partitioning
from exactum.protocol.sink import Rejection
from exactum.sinks.rows import RowCheck, together
from exactum.values.nested import is_text, rows_where
from exactum.values.times import out_of_years
from exactum.values.utf8 import not_utf8


class Refusal:
    """Tells the rows that files of one format hold from those that they do not. Used by one
    task.
    """

    def __init__(
        self, format_name: str, partitioning: Partitioning, partition_by: Sequence[str]
    ) -> None:
        self._format = format_name
        self._partitioning = partitioning
        self._partition_by = frozenset(partition_by)
        self._schema: pa.Schema | None = None

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejection | None]:
        """The rows that can be written (``batch`` itself if all can), and the others with the
        reasons.

        Raises:
            FrameRefused: as ``check_schema``.
        """
        if batch.schema is not self._schema and batch.schema != self._schema:
            self.check_schema(batch.schema)
            self._schema = batch.schema
        check = RowCheck(batch)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            self._check_column(check, name, values)
        self.check_rows(check)
        texts, rejection = check.outcome()  # a folder is named by what is text
        check = RowCheck(texts)
        self._partitioning.check(check)
        taken, unnamed = check.outcome()
        return taken, together(rejection, unnamed)

    def check_schema(self, schema: pa.Schema) -> None:
        """
        Raises:
            FrameRefused: two fields of a struct have one name.
        """
        check_fields(schema)

    def check_rows(self, check: RowCheck) -> None:
        """Refuse rows for what their single values do not say."""
        names = [name for name in check.batch.schema.names if name not in self._partition_by]
        if self._format == "csv" and len(names) == 1:
            check.refuse(
                check.batch.column(names[0]).is_null(),
                f"column {names[0]!r} is null, and readers of CSV skip the empty line of a file "
                "with one column",
            )

    def _check_column(self, check: RowCheck, name: str, values: pa.Array) -> None:
        column = f"column {name!r}"
        # Spark's cast from binary does not check it.
        check.refuse(not_utf8(values), f"{column} is no text in UTF-8", values)
        if name in self._partition_by or self._format == "parquet":
            return
        if self._format == "csv" and is_text(values.type):
            alone = pc.equal(values, pa.scalar("\0", values.type))
            check.refuse(alone, f"{column} is U+0000 alone, which Spark reads as null")
        check.refuse(
            rows_where(values, out_of_years),
            f"{column} is outside the years 1 to 9999, for which readers of {self._format} have "
            "no text",
            values,
        )


def check_fields(schema: pa.Schema) -> None:
    """Structs whose fields readers cannot tell apart.

    Raises:
        FrameRefused: two fields of a struct differ in case only, or not at all.
    """
    for column in schema:
        waiting = [column.type]
        while waiting:
            kind = waiting.pop()
            fields = [kind.field(n) for n in range(kind.num_fields)]
            waiting.extend(f.type for f in fields)
            names = [f.name.lower() for f in fields]
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice and pa.types.is_struct(kind):
                raise FrameRefused(
                    "FILES_COLUMNS",
                    f"The column {column.name!r} holds structs with two fields {twice[0]!r} that "
                    "differ in case only, or not at all, and readers like Spark take them for "
                    "one. Rename one of them. Nothing of the epoch is visible.",
                )
