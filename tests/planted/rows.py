"""Faults of what is computed and of how it is read: batches, state, records and their values."""

from __future__ import annotations

from tests.planted.fault import (
    ALL_ROWS,
    AS_IT_WAS,
    AVRO,
    BAD_RECORD,
    DRIVER,
    OTHER_BATCH,
    STATE,
    Fault,
)

ROWS = (
    Fault(
        "rows are kept by a task that can fail",
        BAD_RECORD,
        "spark/run/opened_sinks.py",
        "                    compute(kept)\n",
        "                    pass\n",
        ("tests/decoding/test_counted_before.py",),
    ),
    Fault(
        "bad records of rows that the user keeps are taken for counted",
        BAD_RECORD,
        "spark/decoding/bad_records.py",
        "if count.counted.number or miscounted}",
        "if count.counted.number}",
        ("tests/decoding/test_counted_before.py",),
    ),
    Fault(
        "a batch that a function reads twice is computed twice",
        AS_IT_WAS,
        "spark/jvm/batch_reads.py",
        "if numbers.count(number) > 1}",
        "if numbers.count(number) > 9}",
        ("tests/spark/test_views.py",),
    ),
    Fault(
        "state goes on from the first computation of a batch",
        STATE,
        "spark/jvm/state.py",
        "        if len(said) > len(ids) == operator.partitions():\n",
        "        if False:\n",
        ("tests/spark/test_unsteady_queries.py",),
    ),
    Fault(
        "a counter of a file source is taken for its files",
        OTHER_BATCH,
        "checkpoint/offset_log.py",
        "    files = files if any(files) else ()\n",
        "    files = ()\n",
        ("tests/spark/test_power_cut.py",),
    ),
    Fault(
        "a staged object goes before its copy is made",
        ALL_ROWS,
        "storage/objects.py",
        "        return self._is_copied(source, target)\n",
        "        return True\n",
        ("tests/storage",),
    ),
    Fault(
        "a time of JSON is rounded to microseconds",
        BAD_RECORD,
        "formats/json_format.py",
        "            if refuse_finer is not None and _MAY_BE_FINER.search(text):\n",
        "            if False:\n",
        ("tests/decoding/test_formats.py",),
    ),
    Fault(
        "a float of JSON is rounded twice",
        BAD_RECORD,
        "formats/exact.py",
        "    if number > Decimal(double):\n        return max(made, other)\n",
        "    if number > Decimal(double):\n        return made\n",
        ("tests/decoding/test_formats.py",),
    ),
    Fault(
        "a time of milliseconds is read as one of microseconds",
        AVRO,
        "formats/avro_resolution.py",
        "    if written != read and (written, read) not in CONVERTED:\n",
        "    if False:\n",
        ("tests/decoding/test_avro_pairs.py",),
    ),
    Fault(
        "at least once does not look at what was decided",
        DRIVER,
        "spark/run/opening.py",
        "    if is_without and delivery.guarantee is Guarantee.AT_LEAST_ONCE:\n",
        "    if delivery.guarantee is Guarantee.AT_LEAST_ONCE:\n",
        ("tests/spark/test_weaker_guarantees.py",),
    ),
)
