"""docs/state.md is run, not only read."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from exactum.ops.cli import main
from tests.kit.crash import oracle
from tests.kit.docs.code import blocks
from tests.kit.docs.program import ran, replaced
from tests.kit.kafka.broker import Broker
from tests.kit.python import python
from tests.kit.waiting import await_true

DOCUMENT = Path(__file__).parents[2] / "docs/state.md"

pytestmark = [pytest.mark.broker, pytest.mark.spark]


TYPED = """
import os, re, sys
from pathlib import Path

import exactum
from exactum.errors import CheckpointRefused
from exactum.ops.cli import main

program, readers, repartition, moved, sinks = sys.argv[1:]
spark = exactum.local_session("typed")
exec(readers)
print(totals.count(), older.count(), "keys", flush=True)
exec(repartition)
last = max(map(int, filter(str.isdigit, os.listdir(f"{moved}/commits"))))
for name in (f"{last}", f".{last}.crc"):
    Path(moved, "commits", name).unlink(missing_ok=True)
exec(repartition)
try:
    exec(program)
    query.processAllAvailable()
except CheckpointRefused as error:
    (command,) = re.findall(r"'(exactum accept [^']*)'", str(error))
    accept = command.replace("DIR", moved).replace("FILE.py:NAME", sinks)
    main([*accept.split()[1:], "--yes"], standalone_mode=False)
exec(program)
query.processAllAvailable()
query.stop()
"""
"""What somebody types into a new process. Spark is killed at the end of the first repartition; the
start behind it is refused with a command.
"""


@pytest.mark.deep
@pytest.mark.usefixtures("settings_put_back")
def test_the_examples_of_the_document(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Word by word but for the names of topics and folders: the first program, and the readers of its
    state. Then these, and the repartition, in a process in which no query has begun before; the state
    has snapshots.
    """
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", 1)
    programs = blocks(DOCUMENT)[:3]
    commands = re.findall(r"^exactum savepoint .*$", DOCUMENT.read_text(), re.MULTILINE)
    orders, out = broker.topic("orders", partitions=1), broker.topic("totals", partitions=1)
    names = {
        "localhost:9092": broker.servers,
        "/data/": f"{tmp_path}/",
        "/backup/": f"{tmp_path}/",
        '"orders"': f'"{orders}"',
        'KafkaSink("totals"': f'KafkaSink("{out}"',
        '.option("batchId", 41)': '.option("batchId", 0)',
        " --stop": "",
    }
    programs[0] = replaced(programs[0], {"query.awaitTermination()": ""})
    for name, ours in names.items():
        programs = [program.replace(name, ours) for program in programs]
        commands = [command.replace(name, ours) for command in commands]

    def written() -> list[tuple[str | None, str | None]]:
        return sorted((s.key, s.value) for s in oracle.read_all(broker.servers, [out]))

    def typed(command: str) -> None:
        done = CliRunner().invoke(main, command.split()[1:])
        assert done.exit_code == 0, done.output

    for key, amount in (("a", 1), ("b", 10), ("a", 2)):
        broker.produce(orders, str(amount), key=key)
    space = ran(programs[0])
    oracle.check_at_rest(broker.servers, [out], str(space["query"].id))
    assert written() == [("a", "3"), ("b", "10")]
    exec(programs[1], space)
    for frame in (space["totals"], space["older"]):
        assert {row.key.key: row.value.amount for row in frame.collect()} == {"a": 3, "b": 10}
    await_true(lambda: list(tmp_path.glob("totals/state/0/*/*.zip")), "the state has a snapshot")
    create, restore = commands
    typed(create)
    typed(restore)
    moved = tmp_path / "totals-12"
    shutil.rmtree(moved)
    typed(f"{restore} --original-is-gone")
    broker.produce(orders, "4", key="a")
    program = programs[0].replace(str(tmp_path / "totals"), str(moved))
    sinks = tmp_path / "sinks.py"
    sinks.write_text(
        f"import exactum\n\nSINKS = [exactum.KafkaSink({out!r}, bootstrap_servers={broker.servers!r})]\n"
    )
    arguments = [program, *programs[1:], moved, f"{sinks}:SINKS"]
    python(TYPED, *arguments)
    assert written() == [("a", "3"), ("a", "7"), ("b", "10")]
    assert len(list(moved.glob("state/0/*/"))) >= 12
