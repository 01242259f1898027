"""The command line: what it prints, and with which status it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum.errors import LocalServerError
from exactum.ops import cli
from tests.kit.python import python

HEAVY = ("pyspark", "confluent_kafka", "kafka", "pyarrow", "numpy")


def test_help_loads_nothing_heavy() -> None:
    """Help comes at once: neither Spark nor a Kafka client is imported for it."""
    code = (
        f"import sys, exactum.ops.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


def test_an_error_is_a_message_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ExactumError is printed once, to stderr, and the status is 2, of whichever command."""

    def refuse(*arguments: object, **named: object) -> None:
        raise LocalServerError("port 9092 of 127.0.0.1 is in use.")

    monkeypatch.setattr("exactum.local.kafka.run_kafka", refuse)
    result = CliRunner().invoke(cli.main, ["local", "kafka"])
    assert result.exit_code == 2
    assert result.stderr == "exactum: port 9092 of 127.0.0.1 is in use.\n"
    assert "Traceback" not in result.output


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only exactum's own errors are shortened: anything else is a defect, and shows where it is."""

    def fail(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("exactum.local.kafka.run_kafka", fail)
    assert isinstance(CliRunner().invoke(cli.main, ["local", "kafka"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(("exact", "status"), [(True, 0), (False, 1)])
def test_the_demo_ends_with_its_verdict(
    monkeypatch: pytest.MonkeyPatch, exact: bool, status: int
) -> None:
    """The status is 0 only if exactum's output is exact."""
    monkeypatch.setattr("exactum.ops.crash_test.demo.Demo.run", lambda demo: exact)
    monkeypatch.setattr("exactum.ops.cli.signal.signal", lambda number, handler: None)
    assert CliRunner().invoke(cli.main, ["demo"]).exit_code == status


def test_an_option_of_the_script_is_told_where_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.touch()
    done = CliRunner().invoke(cli.main, ["run", str(script), "--topic", "orders"])
    assert (done.exit_code, "No such option" in done.output) == (2, True)
    assert "stand behind --, as in: exactum run app.py -- --topic ..." in done.output
