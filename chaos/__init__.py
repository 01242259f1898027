"""Faults against real servers: the fault matrix (``python -m chaos``) and the soak (``python -m
chaos.soak``).

    matrix    what there is: points of an epoch, faults, sinks; which cells cannot happen, and why
    cell_run  one cell: a query runs to a point and is held there, the fault happens, it is let go;
              the verdict
    faults    what each fault does
    savepoint a savepoint that is under way meanwhile; savepoint_process makes it
    ledger    the oracle: what the input was and what every target shows, by plain clients
    servers   the servers, each behind a proxy, and the driver processes
    proxy     cuts, resets, delays, and swallows replies
    driver    the process that runs queries, as a job_spec says
    pool      several sets of servers at once; results as they come
    report    how many cells were exact, as a table
    code      which commit is played
    soak      random faults for minutes or hours

It stands on ``tests/kit``: the queries, deaths, ledgers and oracles of the tests. Run it from the
root of the repository.
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
