"""The quick start: what can be seen of it without typing it all. ``make first-hour`` types it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from exactum.local import LocalKafka
from exactum.ops.project.project import TEMPLATE
from tests.conftest import TopicFactory
from tests.kit.docs.program import replaced
from tests.kit.docs.steps import pattern, steps
from tests.kit.docs.typed import outside_blocks
from tests.kit.environment import ROOT
from tests.kit.waiting import WAIT_MAX_S

PAGE = ROOT / "docs" / "quickstart.md"


def test_the_query_on_the_page_is_the_one_that_init_makes() -> None:
    (shown, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown == (TEMPLATE / "job.py").read_text()


def test_every_command_has_a_line_that_one_should_see() -> None:
    """But for the ones that say nothing: a signal, and a file that is saved."""
    found = list(steps(PAGE))
    assert len(found) >= 8
    quiet = [step.commands for step in found if step.commands and not step.seen]
    assert quiet == []


def test_what_is_made_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (TEMPLATE / "Makefile").read_text(), re.M))
    typed = {
        command.split()[1]
        for step in steps(PAGE)
        for command in step.commands
        if command.startswith("make ")
    }
    assert typed == targets - {"help", "clean", "environment"}


def test_a_line_of_the_page_stands_for_what_is_printed() -> None:
    assert re.search(pattern("a ... (b), ..."), "and a 17 (b), c")
    assert not re.search(pattern("a ... (b), ..."), "and a 17 b, c")


@pytest.mark.slow
@pytest.mark.usefixtures("spark", "settings_put_back")
def test_the_program_that_is_saved_runs(
    kafka: LocalKafka,
    topic: TopicFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the session that the tests share; in one of its own by ``make first-hour``."""
    ((_, program),) = [step.saved for step in steps(PAGE) if step.saved]
    orders = topic("orders", partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for number in range(20):
        producer.produce(orders, f"order {number}")
    assert producer.flush(WAIT_MAX_S) == 0
    (jars,) = (line for line in program.splitlines() if ".config(" in line)
    program = replaced(
        program,
        {
            f"{jars}\n": "",  # the tests' session has them
            "127.0.0.1:9092": kafka.bootstrap_servers,
            '"subscribe", "orders"': f'"subscribe", "{orders}"',
            "data/lake": str(tmp_path / "lake"),
        },
    )
    for _ in range(2):
        exec(program, {"__name__": "__main__"})
    assert capsys.readouterr().out == f"20 orders in {tmp_path / 'lake'}\n" * 2


def test_every_link_between_the_documents_leads_somewhere() -> None:
    """Relative links of the README and of docs/ name files that exist."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", outside_blocks(page.read_text())):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
