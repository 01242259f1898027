"""Sinks of the user's own classes, as ``--sinks FILE.py:NAME`` brings them: a target of folders with
two-phase commit, and a log that is sent. The folder comes from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exactum import FileSink, TwoPhaseCommitSink, WriteAheadSink

FOLDER = "OWN_SINKS_FOLDER"


def folder() -> Path:
    return Path(os.environ[FOLDER])


class Folders(TwoPhaseCommitSink[str]):
    """A transaction is a file in ``open``, and in ``done`` when it is committed."""

    def begin_transaction(self, name: Any) -> str:
        (folder() / "open" / str(name)).touch()
        return str(name)

    def invoke(self, transaction: str, batch: Any) -> None:
        with (folder() / "open" / transaction).open("a") as file:
            file.writelines(f"{value}\n" for value in batch.column("name").to_pylist())

    def pre_commit(self, transaction: str) -> None:
        """It is there already."""

    def commit(self, transaction: str) -> None:
        path = folder() / "open" / transaction
        if path.exists():
            path.rename(folder() / "done" / transaction)

    def abort(self, transaction: str) -> None:
        (folder() / "open" / transaction).unlink(missing_ok=True)

    def list_transactions(self, scope: Any) -> Iterable[tuple[str, str]]:
        for path in (folder() / "open").iterdir():
            yield path.name, path.name


class Everything(Folders):
    """It lists what is settled, too, as it may."""

    def list_transactions(self, scope: Any) -> Iterable[tuple[str, str]]:
        yield from super().list_transactions(scope)
        for path in (folder() / "done").iterdir():
            yield path.name, path.name


def send(batch: Any, key: str) -> None:
    with (folder() / "sent").open("a") as file:
        file.writelines(f"{key} {value}\n" for value in batch.column("name").to_pylist())


def files() -> FileSink:
    return FileSink(folder() / "files", format="json", name="files")


def folders() -> Folders:
    return Folders(name="folders")


def everything() -> Everything:
    return Everything(name="folders")


def write_ahead() -> WriteAheadSink:
    return WriteAheadSink(send, name="ahead", rows_per_send_max=2)


def sinks() -> list[Any]:
    return [files(), folders(), write_ahead()]
