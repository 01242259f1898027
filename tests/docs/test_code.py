"""The Python on the pages. Each block is run by the test of its page or, where it cannot stand
alone, compared with what exactum has.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.docs.code import blocks, faults
from tests.kit.environment import ROOT

DOCS = ROOT / "docs"
PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if blocks(page)]
RUN_BY = {
    "README.md": "docs/test_guides.py",
    "docs/adding-a-sink.md": "docs/test_adding_a_sink.py",
    "docs/batch.md": "docs/test_guides.py",
    "docs/cluster.md": "docs/test_guides.py",
    "docs/coming-from/flink.md": "docs/test_coming_from.py",
    "docs/coming-from/jdbc.md": "docs/test_coming_from.py",
    "docs/coming-from/kafka-streams.md": "docs/test_coming_from.py",
    "docs/coming-from/spark-kafka-sink.md": "docs/test_coming_from.py",
    "docs/control.md": "docs/test_guides.py",
    "docs/decoding.md": "decoding/test_policies.py",
    "docs/delta.md": "docs/test_guides.py",
    "docs/files.md": "docs/test_guides.py",
    "docs/guarantees.md": "crash/test_salvage.py",
    "docs/iceberg.md": "docs/test_guides.py",
    "docs/index.md": "docs/test_guides.py",
    "docs/kafka.md": "docs/test_guides.py",
    "docs/metrics.md": "docs/test_guides.py",
    "docs/mysql.md": "docs/test_guides.py",
    "docs/operations.md": "docs/test_recipes.py",
    "docs/own-target.md": "docs/test_guides.py",
    "docs/postgres.md": "docs/test_guides.py",
    "docs/quickstart.md": "docs/test_quickstart.py",
    "docs/reference/own-targets.md": "custom/test_two_phase.py",
    "docs/running.md": "docs/test_guides.py",
    "docs/savepoints.md": "docs/test_guides.py",
    "docs/source.md": "docs/test_guides.py",
    "docs/state.md": "state/test_document.py",
    "docs/targets.md": "docs/test_guides.py",
    "docs/testing-your-job.md": "docs/test_testing_your_job.py",
    "docs/tour.md": "docs/test_tour.py",
    "docs/transactions.md": "ops/test_targets.py",
}
"""The test that runs a page's blocks, but for those of ``NOT_RUN``."""
NOT_RUN = {
    ("docs/coming-from/spark-kafka-sink.md", 1): "make from-duplicates types it",
    ("docs/connect.md", 0): "it needs a server of Spark Connect; make connect plays such queries",
    ("docs/kafka.md", 1): "it logs in; tests/security does so at a real cluster",
    (
        "docs/own-target.md",
        1,
    ): "it needs Delta's jar; tests/spark/test_table_sink.py writes Parquet",
    ("docs/source.md", 0): "it shows a signature",
    ("docs/source.md", 2): "it logs in; tests/security does so at a real cluster",
}
"""Blocks that are only looked at, by page and number, and why."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_uses_what_exactum_has(page: Path) -> None:
    assert faults(blocks(page)) == []


def test_the_first_program_of_the_readme_is_that_of_the_index() -> None:
    """Which runs."""
    first, *_ = blocks(ROOT / "README.md")
    assert [first] == blocks(DOCS / "index.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_whole_program_waits_for_its_query(page: Path) -> None:
    """One that is saved and run as it stands would otherwise end before its first micro-batch."""
    whole = [code for code in blocks(page) if "session(" in code or "SparkSession.builder" in code]
    hasty = [code for code in whole if ".start(" in code and ".awaitTermination()" not in code]
    assert hasty == []


def test_no_two_guides_have_one_checkpoint() -> None:
    """Who pastes one program after the other would go on where the first one was."""
    programs = [
        program
        for page in sorted(DOCS.glob("*.md"))
        for program in blocks(page)
        if "exactum.local_session(" in program
    ]
    kept = [
        place
        for program in programs
        for place in re.findall(r'checkpoint=("/data/[^"]+")', program)
    ]
    assert len(kept) >= 6
    assert len(set(kept)) == len(kept)


def test_every_page_with_code_has_a_test() -> None:
    """A page that is new says who runs it, or why nobody does."""
    found = {(str(page.relative_to(ROOT)), n) for page in PAGES for n in range(len(blocks(page)))}
    assert set(NOT_RUN) <= found
    assert {page for page, _ in found - set(NOT_RUN)} == set(RUN_BY)


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_the_test_of_a_page_reads_it(page: str, test: str) -> None:
    """Or the file that the page shows."""
    read = {Path(page).name, *re.findall(r'--8<-- "\S+/(\w+)\.py"', (ROOT / page).read_text())}
    text = (ROOT / "tests" / test).read_text()
    assert any(name in text for name in read)


def test_what_is_wrong_is_seen() -> None:
    for code in (
        "exactum.exactly_twice(sink)",
        "import exactum.nothing",
        "from exactum import Nothing",
        "from exactum.local import nothing",
        "from exactum.local import LocalKafka as Kafka\nKafka.nothing",
        "exactum.KafkaSink('t', bootstrap_server='b')",
        "exactum.KafkaSink()",
        "exactum.exactly_once(sink, dead_letter=sink)",
        "exactum.read_kafka(spark, 'orders', bootstrap_servers=b, groupid='g')",
        "server = exactum.serve_metrics(port=0)\nserver.stop()",
        "server = exactum.serve_metrics(port=0)\nserver.close(now=True)",
        "query = (",
    ):
        assert faults([code]), code


def test_what_is_right_is_left_alone() -> None:
    first = "from exactum.local import LocalKafka as Kafka\nsink = exactum.KafkaSink('t', **more)"
    second = (
        "exactum.exactly_once(*sinks, dead_letters=sink)\n"
        "exactum.read_kafka(spark, 'orders', bootstrap_servers=b, maxOffsetsPerTrigger=1)\n"
        "exactum.errors.Unavailable\n"
        "Kafka.__name__\n"
        "server = exactum.serve_metrics(port=0)\nserver.close()\nserver.url\n"
        "other.exactly_twice()"
    )
    assert faults([first, second]) == []
