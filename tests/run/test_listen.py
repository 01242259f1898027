"""``exactum run --listen``: where it serves, and that no trouble of it is the script's."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from exactum.monitor.http_server import PORTS_TRIED_MAX
from tests.kit.monitor.prometheus import free_port, get, samples
from tests.kit.run.run_command import Command

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys, time
import exactum
from exactum.spark.supervised import process

process.current().report_run("q")
process.current().report_event(
    exactum.events.RunStarted("q", 0, "i", "r", "quiet", "exactly once", "c", (), (), 0)
)
while not os.path.exists("over"):
    time.sleep(0.02)
    while os.path.exists("flood"):
        event = exactum.events.EpochAbandoned("q", 1, "i", 0, "x" * 10_000)
        process.current().report_event(event)
        time.sleep(0.001)
sys.exit(0)
"""
SERVES = re.compile(r"(http://\S+:\d+)/ serves")


def quiet(folder: Path, options: Sequence[str]) -> Command:
    """A script that runs until ``end``."""
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(SCRIPT)
    return Command(folder, folder / "app.py", options)


def end(folder: Path, run: Command) -> None:
    (folder / "over").touch()
    assert run.ends(30.0) == 0


def url(run: Command) -> str:
    run.says("/ serves")
    found = SERVES.search(run.log)
    assert found is not None
    return found[1]


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """Ports in a row that somebody else listens at."""
    with ExitStack() as held:
        while True:
            first = free_port()
            ports = [*range(first, first + PORTS_TRIED_MAX + 1)]
            try:
                for port in ports:
                    held.enter_context(listening(port))
            except OSError:  # one of them is in use: elsewhere
                continue
            yield ports
            return


def listening(port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    one.listen(1)
    return one


def test_no_port_is_free(tmp_path: Path, taken: list[int]) -> None:
    """One line says so, and the script runs."""
    with quiet(tmp_path, ["--listen", str(taken[0])]) as run:
        run.says("nothing is served, and the script runs all the same")
        run.says("started")
        end(tmp_path, run)
    assert run.log.count("nothing is served") == 1


@pytest.mark.deep
def test_the_next_port_is_taken_and_readers_that_hang_are_left(
    tmp_path: Path, taken: list[int]
) -> None:
    """As Spark's UI does; what is asked for answers, what is not there is said, and browsers that
    never read keep nobody from ending.
    """
    with quiet(tmp_path, ["--listen", f"localhost:{taken[-2]}"]) as run, ExitStack() as browsers:
        base = url(run)
        assert int(base.rsplit(":", 1)[1]) > taken[-1]
        run.until(lambda: get(f"{base}/readyz") == (200, "ready\n"), "it is ready")
        assert get(f"{base}/livez") == (200, "lives\n")
        assert 'exactum_up{query="quiet"} 1.0' in get(f"{base}/metrics")[1]
        assert get(f"{base}/elsewhere")[0] == 404
        port = int(base.rsplit(":", 1)[1])
        for _ in range(20):
            browsers.enter_context(socket.create_connection(("localhost", port)))
        end(tmp_path, run)


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/metrics says what to install; the probes need nothing."""
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "prometheus_client.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(missing), prepend=":")
    with quiet(tmp_path, ["--listen", "0"]) as run:
        base = url(run)
        status, text = get(f"{base}/metrics")
        assert status == 501
        assert "pip install 'exactum[metrics]'" in text
        assert get(f"{base}/livez")[0] == 200
        end(tmp_path, run)


def test_beyond_this_machine_it_warns(tmp_path: Path) -> None:
    """There is no login: whoever listens elsewhere is told."""
    with quiet(tmp_path, ["--listen", "0.0.0.0:0"]) as run:
        url(run)
        run.says("it has no login")
        end(tmp_path, run)


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [("none", 0, "started"), ("here:there", 2, "'here:there' is not [HOST:]PORT")],
)
def test_where_nothing_is_served(tmp_path: Path, address: str, status: int, said: str) -> None:
    with quiet(tmp_path / "app", ["--listen", address]) as run:
        run.says(said)
        (tmp_path / "app" / "over").touch()
        assert run.ends() == status
    assert " serves" not in run.log


def test_it_is_not_ready_once_the_process_is_dead(tmp_path: Path) -> None:
    """The reason is there for whoever asks; the supervisor lives on."""
    with quiet(tmp_path, ["--listen", "0", "--restart-delay", "60 s"]) as run:
        base = url(run)
        run.until(lambda: get(f"{base}/readyz")[0] == 200, "it is ready")
        run.signal_session(run.pids()[0], signal.SIGKILL)
        run.until(lambda: get(f"{base}/readyz")[0] == 503, "it is not ready")
        assert "about to be started again" in get(f"{base}/readyz")[1]
        text = get(f"{base}/metrics")[1]
        for line in ('exactum_up{query="quiet"} 0.0', "exactum_process_restarts_total 1.0"):
            assert line in text
        assert get(f"{base}/livez")[0] == 200


def test_a_supervisor_that_is_frozen_loses_events_and_says_so(tmp_path: Path) -> None:
    """Its script does not wait for it; what could not be told is counted."""
    with quiet(tmp_path, ["--listen", "0"]) as run:
        base = url(run)
        run.until(lambda: get(f"{base}/readyz")[0] == 200, "it is ready")
        run.signal(signal.SIGSTOP)
        (tmp_path / "flood").touch()
        time.sleep(4)
        (tmp_path / "flood").unlink()
        run.signal(signal.SIGCONT)

        def lost() -> float:
            return next(v for n, _, v in samples(get(f"{base}/metrics")[1]) if "dropped" in n)

        run.until(lambda: lost() > 0, "it is counted")
        end(tmp_path, run)
