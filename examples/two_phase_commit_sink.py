"""A target of your own, exactly once: rows as JSON lines, in a temporary folder first, then renamed
into place.

    python two_phase_commit_sink.py /data/numbers --checkpoint /data/numbers-checkpoint

Kill it whenever you like and start it again: ``cat /data/numbers/*.jsonl`` has every number once.
The folder must be one that the driver and all executors see.
``exactum.testing.TwoPhaseCommitContract`` crashes the class at every call
(tests/contract/test_sink.py).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exactum import TransactionLost, TransactionName, TransactionScope, TwoPhaseCommitSink

ENDING = ".jsonl"


class JsonFolderSink(TwoPhaseCommitSink[str]):
    """Each task's rows become one file in ``folder``. A transaction is the name of that file,
    without its ending.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(name="json-folder")
        self.folder = Path(folder).absolute()
        self.temporary = self.folder / ".temporary"

    def connect(self) -> None:
        self.temporary.mkdir(parents=True, exist_ok=True)

    def begin_transaction(self, name: TransactionName) -> str:
        self._staged(str(name)).touch(exist_ok=False)
        return str(name)

    def invoke(self, transaction: str, batch: Any) -> None:
        # "r+" and not "a": what the driver has aborted meanwhile must not come back to life.
        with self._staged(transaction).open("r+") as file:
            file.seek(0, os.SEEK_END)
            file.writelines(json.dumps(row, default=str) + "\n" for row in batch.to_pylist())

    def pre_commit(self, transaction: str) -> None:
        sync(self._staged(transaction))
        sync(self.temporary)

    def commit(self, transaction: str) -> None:
        try:
            self._staged(transaction).rename(self._published(transaction))
        except FileNotFoundError:
            # Committed before, by this driver or by another one? Then the file stands: nobody may
            # move it away.
            if not self._published(transaction).exists():
                raise TransactionLost(
                    f"{self._staged(transaction)} is gone, and was never published"
                ) from None
        sync(self.folder)

    def abort(self, transaction: str) -> None:
        self._staged(transaction).unlink(missing_ok=True)

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, str]]:
        names = [path.name.removesuffix(ENDING) for path in self.temporary.iterdir()]
        return [(name, name) for name in names if name.startswith(scope.prefix)]

    def _staged(self, transaction: str) -> Path:
        return self.temporary / f"{transaction}{ENDING}"

    def _published(self, transaction: str) -> Path:
        return self.folder / f"{transaction}{ENDING}"


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main() -> None:
    import exactum

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--checkpoint", required=True)
    chosen = parser.parse_args()
    spark = exactum.local_session("numbers")
    # The executors import the sink's class: it must live in a module, and a script's own is called
    # __main__.
    spark.sparkContext.addPyFile(__file__)
    from two_phase_commit_sink import JsonFolderSink as Sink

    rows = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 100)
        .load()
        .selectExpr("value AS number", "CAST(timestamp AS STRING) AS at")
    )
    once = exactum.exactly_once(Sink(chosen.folder))
    query = once.start(
        rows.writeStream.trigger(processingTime="1 second"), checkpoint=chosen.checkpoint
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
