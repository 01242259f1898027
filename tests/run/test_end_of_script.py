"""How runs end under which the script ends: the interpreter takes their threads away."""

from __future__ import annotations

import json

import pytest

from tests.kit.python import python

pytestmark = pytest.mark.slow

CUT = ["", "it was cut off by the end of its script"]
PROGRAM = """
import json, threading, weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import MagicMock
from exactum.errors import RowsRefused
from exactum.spark.run.batches import EpochRunner

def runner(name, stopped=False):
    run = SimpleNamespace(
        failure=lambda: None,
        was_stopped=lambda: stopped,
        has_read_all=lambda completed: False,
        about=lambda batch_id: (name, batch_id, "i"),
        emit=lambda event: print(json.dumps([name, [event.error, event.reason]]), flush=True),
    )
    made = {name: MagicMock() for name in ("committed_epochs", "bad_records", "jobs")}
    return EpochRunner(run, MagicMock(), MagicMock(), MagicMock(), **made)

pool = ThreadPoolExecutor(1)
pool.submit(int).result()

def works(at_work, refused):
    try:
        while True:
            pool.submit(int).result()
    except RuntimeError as error:
        at_work.report_end(error)
        refused.report_end(RowsRefused("CODE", "no"))

runner("before").report_end(RuntimeError("of its own"))
weakref.finalize(pool, runner("at exit").report_end)
weakref.finalize(pool, runner("stopped", True).report_end)
threading.Thread(target=works, args=(runner("at work"), runner("refused"))).start()
raise KeyError("of the script")
"""


def test_a_run_that_ends_with_its_script_has_not_failed() -> None:
    """Neither is it said to be stopped, unless it was. What it must not go on with is said."""
    said = python(PROGRAM, status=1).stdout.splitlines()
    assert dict(map(json.loads, said)) == {
        "before": ["RuntimeError", "of its own"],
        "at work": CUT,
        "at exit": CUT,
        "stopped": ["", ""],
        "refused": ["RowsRefused", "[CODE] no"],
    }
