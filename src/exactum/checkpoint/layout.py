"""Where exactum keeps what is its own within a checkpoint's folder: every path below
``<checkpoint>/exactum/``.

    exactum/decisions/            the decision log (``files.slot_log``), unless it is kept elsewhere
    exactum/query/<k>.json        what the query leaves for its next start (``query_record``)
    exactum/runs/                 who runs here, or ran (``run_file``)
    exactum/requests/             who asks the query to stop (``request_file``)
    exactum/retired.json          another checkpoint took this one's place (``retirement``)
    exactum/control/<topic>/      the rules that decided epochs saw (``spark.control.listener``)
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
QUERY = OWN / "query"
CONTROL = OWN / "control"
HISTORY = OWN / "history"
REPLAYS = OWN / "replays"
STAGING = OWN / "staging"
OF_PARENT = "of-"
"""Before the query id, in the name of a folder below ``REPLAYS``."""
