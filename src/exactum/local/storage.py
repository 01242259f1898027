"""The folder of a cluster: what was made there once and cannot change, and each node's format."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exactum.errors import LocalServerError
from exactum.java.program import SMALL_OPTIONS
from exactum.local.broker import kafka_archive, kafka_command

FORMAT_TIMEOUT_S = 180.0
FORMAT_HEAP_MB = 128


def locked(folder: Path) -> int:
    """Take the folder for this process; returns the descriptor that holds it, to be closed.

    The system frees it when the process dies, however it dies. Raises LocalServerError where
    another cluster runs there: two of them would ruin each other's data.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LocalServerError(
            f"a Kafka runs on {folder} already, whatever its port. Use that one or stop it first; "
            "or give this one another data_dir. Nothing was changed."
        ) from None
    return descriptor


def identify(folder: Path, shape: dict[str, Any]) -> str:
    """Return the id of the cluster in `folder`, noted there together with its `shape`.

    Idempotent. Raises LocalServerError where a cluster of another shape is there.
    """
    note = folder / "cluster.json"
    if not note.exists():
        # A leading "-" would read as an option on the command line.
        cluster_id = "e" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        writing = note.with_suffix(".writing")
        writing.write_text(json.dumps({"cluster_id": cluster_id, **shape}) + "\n")
        writing.replace(note)
        return cluster_id
    found: dict[str, Any] = json.loads(note.read_text())
    cluster_id = str(found.pop("cluster_id"))
    if found != shape:
        raise LocalServerError(
            f"{folder} holds a cluster made with {found}, and {shape} is asked for. "
            "Ask for the same, or use another data_dir."
        )
    return cluster_id


def format_nodes(folders: Sequence[Path], cluster_id: str, transaction_version: int | None) -> None:
    """Format the data of every node that are not yet formatted, all at once. Idempotent.

    Each folder has its ``server.properties``, whose log folder is ``data`` within it.
    Raises LocalServerError with the tool's own words.
    """
    command = kafka_command(
        "kafka.tools.StorageTool",
        FORMAT_HEAP_MB,
        *SMALL_OPTIONS,
        *kafka_archive().reading_options(),
    )
    command += ["format", "--ignore-formatted", "-t", cluster_id]
    if transaction_version is not None:
        command += ["--feature", f"transaction.version={transaction_version}"]
    running = {
        folder: subprocess.Popen(
            [*command, "-c", str(folder / "server.properties")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for folder in folders
        if not (folder / "data" / "meta.properties").exists()
    }
    deadline = time.monotonic() + FORMAT_TIMEOUT_S
    try:
        for folder, process in running.items():
            output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            if process.returncode != 0:
                raise LocalServerError(f"Kafka could not format {folder}:\n{output}")
    except subprocess.TimeoutExpired as error:
        raise LocalServerError(
            f"formatting {folder} took more than {FORMAT_TIMEOUT_S:.0f} s."
        ) from error
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.communicate()
