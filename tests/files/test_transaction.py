"""What a decision record says of files is read with care: it may have been edited."""

from __future__ import annotations

import json

import pytest

from exactum.errors import InvariantBroken
from exactum.files.transaction import FileTransaction, read_manifest
from exactum.protocol.model import PreparedTransaction


@pytest.mark.parametrize("folder", ["../out", "/etc", "a/../../b", "a//b", "day=1/.."])
def test_a_record_that_leads_out_of_the_folder(folder: str) -> None:
    """An edited decision record names no file outside of the sink's folder: it is refused as
    damaged.
    """
    payload = {
        "where": "/x",
        "incarnation": "a" * 16,
        "batch": 0,
        "attempt": 1,
        "extension": "json",
        "count": 1,
    }
    record = PreparedTransaction(
        "files", "b" * 16, 1, json.dumps({**payload, "files": [[folder, 1, 1]]})
    )
    with pytest.raises(InvariantBroken, match="leads out"):
        FileTransaction.of(record)
    with pytest.raises(InvariantBroken, match="leads out"):
        read_manifest(json.dumps({"files": [[folder, 1, 1]]}).encode(), "here")
    for name, value in (("incarnation", "../x"), ("extension", "/../../x")):
        changed = {**payload, "files": [], name: value}
        with pytest.raises(InvariantBroken, match="leads out"):
            FileTransaction.of(PreparedTransaction("files", "b" * 16, 1, json.dumps(changed)))
    with pytest.raises(InvariantBroken, match="leads out"):
        FileTransaction.of(
            PreparedTransaction("files", "../x", 1, json.dumps({**payload, "files": []}))
        )
