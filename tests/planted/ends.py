"""The planted faults of the comparison of target, decision log and checkpoint."""

from __future__ import annotations

from tests.planted.fault import LOST, Fault

ENDS = (
    Fault(
        "a commit that no record names is not looked for",
        LOST,
        "protocol/ends.py",
        "    if unknown := unknown_commits(begins, log, each, earlier, noted, run=run):\n",
        "    if unknown := ():\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "an older copy of a checkpoint does not look for runs that it does not know",
        LOST,
        "protocol/ends.py",
        "        return by in incarnations or 0 < run <= run_number(by)\n",
        "        return by in incarnations\n",
        ("tests/crash/test_older_copy.py",),
    ),
    Fault(
        "a target above the log is not refused",
        LOST,
        "protocol/ends.py",
        "        if target.has > log:\n",
        "        if False:\n",
        ("tests/protocol", "tests/testing", "tests/contract/test_put_back.py -k postgres"),
    ),
    Fault(
        "a target below the log is not refused",
        LOST,
        "protocol/ends.py",
        "        elif target.has_lost:\n",
        "        elif False:\n",
        ("tests/protocol", "tests/testing", "tests/contract/test_put_back.py -k postgres"),
    ),
    Fault(
        "a log that ends before the checkpoint is not refused",
        LOST,
        "protocol/ends.py",
        "    if ends.noted is not None and ends.noted > log:\n",
        "    if False:\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "a run writes past a commit that its target has lost",
        LOST,
        "protocol/ends.py",
        "    refuse_gaps(query_id, Ends(batch_id, batch_id - 1, None, targets), is_running=True)\n",
        "",
        ("tests/protocol", "tests/testing", "tests/contract/test_put_back.py -k postgres"),
    ),
    Fault(
        "finish does not see that a target has gone back",
        LOST,
        "ops/transactions/settlement.py",
        "        refuse_gaps(place.query_id, Ends(place.first_unfinished(), end.owes, None, (end,)))\n",
        "        pass\n",
        ("tests/transactions/test_databases.py",),
    ),
    Fault(
        "what was staged for another place is loaded here as well",
        LOST,
        "protocol/ends.py",
        "    if not participant.are_for_here(lacks):\n        return False\n",
        "",
        ("tests/sql/postgres/test_moved.py",),
    ),
    Fault(
        "another decision log is taken for the query's own",
        LOST,
        "checkpoint/query_place.py",
        "    if found == record.log_id:\n",
        "    if True:\n",
        ("tests/spark/test_log_at_start.py",),
    ),
    Fault(
        "behind a recovery the first batch that a run decides is not noted",
        LOST,
        "spark/run/run_start.py",
        "            self._attending.stays(self)\n",
        "            pass\n",
        ("tests/spark/test_older_checkpoint.py",),
    ),
    Fault(
        "verify asks no topic for transactions that no decision names",
        LOST,
        "ops/verify.py",
        "            return [*found, *_without_a_record(place, participant)]\n",
        "            return found\n",
        ("tests/verify/test_kafka_evidence.py",),
    ),
)
