"""Where exactum keeps what is its own within a checkpoint's folder: every path below
``<checkpoint>/exactum/``.

    exactum/decisions/            the decision log (``files.slot_log``), unless it is kept elsewhere
    exactum/runs/                 who runs here, or ran (``run_file``), and with which settings
    exactum/requests/             who asks the query to stop (``request_file``)
    exactum/retired.json          another checkpoint took this one's place (``retirement``)
    exactum/restored.json         the savepoint that it was made from (``savepoint.restore``)
    exactum/sinks.json            the sinks of the last run, and former ones (``known_sinks``)
    exactum/control/<topic>/      the rules that decided epochs saw (``spark.control.record``)
    exactum/source/<n>/           topics of the query's source n (``spark.source.record``)
    exactum/replays/              which dead letters were sent again: a decision log of its own
    exactum/replays/of-<query>/   the same of a query that this one is a fork of
    exactum/staging/<scope>/      rows that wait for their decision (``sinks.staging``)
    exactum/history/              what happened, for onlookers (``monitor.history``)

Names and formats below these paths stay what they are: a checkpoint outlives the exactum that wrote
it.
"""

from __future__ import annotations

from pathlib import Path

OWN = Path("exactum")
DECISIONS = OWN / "decisions"
RUNS = OWN / "runs"
REQUESTS = OWN / "requests"
RETIRED = OWN / "retired.json"
RESTORED = OWN / "restored.json"
SINKS = OWN / "sinks.json"
CONTROL = OWN / "control"
SOURCES = OWN / "source"
HISTORY = OWN / "history"
REPLAYS = OWN / "replays"
STAGING = OWN / "staging"
OF_PARENT = "of-"
"""Before the query id, in the name of a folder below ``REPLAYS``."""
