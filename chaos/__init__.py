"""Faults against real servers: the fault matrix (``make chaos`` plays ``tests/chaos/play.py``) and
the soak (``python -m chaos.soak``).

    matrix    what there is: points of an epoch, faults, sinks; which cells cannot happen, and why
    cell_run  one cell: a query runs to a point and is held there, the fault happens, it is let go;
              the verdict
    faults    what each fault does
    savepoint a savepoint that is under way meanwhile; savepoint_process makes it
    query_oracle  what the input was and what every target shows, by plain clients
    servers   the servers, each behind a proxy, and the driver processes
    stage     the servers of one process, for one cell after another
    proxy     cuts, resets, delays, and swallows replies
    start     what a driver process is told, and how a query ended there
    report    how many cells have passed, as a table
    soak      random faults for minutes or hours

It stands on ``tests/kit``: the queries, deaths, ledgers and oracles of the tests. Run it from the
root of the repository.
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
