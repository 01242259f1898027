"""What ``exactum run`` tells others: where it serves (``--listen``), and the lines that it prints. No trouble
of either is the script's.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from exactum.monitor.http_server import PORTS_TRIED_MAX
from exactum.ops.run.run_display import RunDisplay
from tests.kit.environment import environment
from tests.kit.monitor.fed_query import base_url
from tests.kit.monitor.prometheus import free_port, get, samples
from tests.kit.process_tree import signal_session
from tests.kit.run.run_command import Command, command
from tests.kit.waiting import WAIT_MAX_S

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
    if os.path.exists("flood"):
        for _ in range(5_000):
            event = exactum.events.EpochAbandoned("q", 1, "i", 0, "x" * 10_000)
            process.current().report_event(event)
        os.rename("flood", "told")
sys.exit(0)
"""


def end(folder: Path, run: Command) -> None:
    (folder / "over").touch()
    assert run.ends() == 0


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
    with command(tmp_path, SCRIPT, "--listen", str(taken[0])) as run:
        run.says("nothing is served, and the script runs all the same")
        run.says("started")
        end(tmp_path, run)
    assert run.log.count("nothing is served") == 1


def test_the_next_port_is_taken_and_without_the_extra(
    tmp_path: Path, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's UI does. /metrics says what to install; the probes need nothing."""
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "prometheus_client.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(missing), prepend=":")
    with command(tmp_path, SCRIPT, "--listen", f"localhost:{taken[-2]}") as run:
        base = base_url(run)
        assert int(base.rsplit(":", 1)[1]) > taken[-1]
        status, text = get(f"{base}/metrics")
        assert status == 501
        assert "pip install 'exactum[metrics]'" in text
        assert get(f"{base}/livez")[0] == 200
        end(tmp_path, run)


def test_beyond_this_machine_it_warns(tmp_path: Path) -> None:
    """There is no login: whoever listens elsewhere is told. Browsers that never read keep nobody
    from ending.
    """
    with command(tmp_path, SCRIPT, "--listen", "0.0.0.0:0") as run, ExitStack() as browsers:
        port = int(base_url(run).rsplit(":", 1)[1])
        run.says("it has no login")
        for _ in range(20):
            browsers.enter_context(socket.create_connection(("localhost", port)))
        end(tmp_path, run)


def test_it_is_not_ready_once_the_process_is_dead(tmp_path: Path) -> None:
    """The reason is there for whoever asks; the supervisor lives on."""
    with command(tmp_path, SCRIPT, "--listen", "0", "--restart-delay", "1 h") as run:
        base = base_url(run)
        run.until(lambda: get(f"{base}/readyz")[0] == 200, "it is ready")
        signal_session(run.pids()[0], signal.SIGKILL)
        # Before the supervisor has noticed, only the query is down.
        run.until(
            lambda: "about to be started again" in get(f"{base}/readyz")[1], "it is not ready"
        )
        assert get(f"{base}/readyz")[0] == 503
        text = get(f"{base}/metrics")[1]
        for line in ('exactum_up{query="quiet"} 0.0', "exactum_process_restarts_total 1.0"):
            assert line in text
        assert get(f"{base}/livez")[0] == 200


def test_a_supervisor_that_is_frozen_loses_events_and_says_so(tmp_path: Path) -> None:
    """Its script does not wait for it; what could not be told is counted."""
    with command(tmp_path, SCRIPT, "--listen", "0") as run:
        base = base_url(run)
        run.until(lambda: get(f"{base}/readyz")[0] == 200, "it is ready")
        run.signal(signal.SIGSTOP)
        (tmp_path / "flood").touch()
        run.until((tmp_path / "told").exists, "more was told than the script keeps")
        run.signal(signal.SIGCONT)

        def lost() -> float:
            return next(v for n, _, v in samples(get(f"{base}/metrics")[1]) if "dropped" in n)

        run.until(lambda: lost() > 0, "it is counted")
        end(tmp_path, run)


DIES_ONCE = """
import sys
from pathlib import Path
with open("lives", "a") as lives:
    lives.write("x")
sys.exit(Path("lives").read_text() == "x")
"""


def full() -> tuple[int, int]:
    """A pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(1 << 12))
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def gone() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


STREAMS: dict[str, Callable[[], int]] = {
    "gone": gone,
    "does not read": lambda: full()[1],
    "disk full": lambda: os.open("/dev/full", os.O_WRONLY),
}


@pytest.mark.slow
@pytest.mark.variants(1)
@pytest.mark.parametrize("reader", STREAMS)
def test_a_script_that_dies_is_started_again(tmp_path: Path, reader: str) -> None:
    """Whatever becomes of the lines that say so."""
    (tmp_path / "app.py").write_text(DIES_ONCE)
    command = [sys.executable, "-m", "exactum.ops.cli", "run", "app.py", "--listen", "none"]
    done = subprocess.run(
        [*command, "--restart-delay", "10 ms"],
        check=True,
        stdin=subprocess.DEVNULL,
        stderr=STREAMS[reader](),
        cwd=tmp_path,
        env=environment(),
        timeout=WAIT_MAX_S,
    )
    assert (done.returncode, (tmp_path / "lives").read_text()) == (0, "xx")


def test_a_reader_that_reads_again_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that nobody took are not kept, and are not waited for one by one."""
    reader, writer = full()
    monkeypatch.setattr(sys, "__stderr__", SimpleNamespace(fileno=lambda: writer, encoding="ascii"))
    began_s = time.monotonic()
    view = RunDisplay()
    for number in range(1_000):
        view.say(f"line {number}")
    assert time.monotonic() - began_s < WAIT_MAX_S  # one by one takes 500 s
    os.set_blocking(reader, False)
    with suppress(BlockingIOError):
        while os.read(reader, 1 << 16):
            pass
    view.say("\u00e4")
    (said,) = os.read(reader, 1 << 16).decode("ascii").splitlines()
    assert said.endswith("exactum run: \\xe4")
