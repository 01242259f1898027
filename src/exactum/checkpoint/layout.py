"""Where exactum keeps what is its own within a checkpoint, in a folder or in an object store:
every name below ``<checkpoint>/exactum/``.

    exactum/decisions/            the decision log (``files.slot_log``), unless it is kept elsewhere
    exactum/query/<k>.json        what the query leaves for its next start (``query_record``)
    exactum/runs/                 who runs here, or ran (``run_file``)
    exactum/requests/             who asks the query to stop (``request_file``)
    exactum/retired.json          another checkpoint took this one's place (``retirement``)
    exactum/restoring/            it is being made of a savepoint, or was (likewise)
    exactum/control/<topic>/      the rules that decided epochs saw (``spark.control.listener``)
    exactum/replays/              which dead letters were sent again: a decision log of its own
    exactum/replays/of-<query>/   the same of a query that this one is a fork of
    exactum/staging/<scope>/      rows that wait for their decision (``sinks.staging``)
    exactum/history/              what happened, for onlookers (``monitor.history``)

Names and formats below these paths stay what they are: a checkpoint outlives the exactum that wrote
it.
"""

from __future__ import annotations

OWN = "exactum"
DECISIONS = f"{OWN}/decisions"
RUNS = f"{OWN}/runs"
REQUESTS = f"{OWN}/requests"
RETIRED = f"{OWN}/retired.json"
RESTORING = f"{OWN}/restoring"
QUERY = f"{OWN}/query"
CONTROL = f"{OWN}/control"
HISTORY = f"{OWN}/history"
REPLAYS = f"{OWN}/replays"
STAGING = f"{OWN}/staging"
OF_PARENT = "of-"
"""Before the query id, in the name of a folder below ``REPLAYS``."""
