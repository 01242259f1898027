"""The command line: what it prints, and with which status it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum.ops import cli


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
