"""``exactum run`` over small scripts without Spark: how they end, and what it makes of that."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum.ops.cli import main
from exactum.ops.run.stopping import Signals
from tests.kit.process_tree import signal_session
from tests.kit.run.run_command import command

pytestmark = pytest.mark.slow

AT_ONCE = ["--restart-delay", "10 ms", "--restart-attempts", "1"]
COUNTED = """
import os, sys
from pathlib import Path
count = Path("count")
life = int(count.read_text()) if count.exists() else 0
count.write_text(str(life + 1))
"""
STUBBORN = """
import signal, time
import exactum
signal.signal(signal.SIGTERM, lambda *_: print("not yet", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def in_a_terminal() -> Iterator[None]:
    """As is usual: the tests themselves may run below nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def lives(folder: Path) -> int:
    return int((folder / "count").read_text())


def test_a_script_that_ends_is_done(tmp_path: Path) -> None:
    """Status 0 is passed on; the script sees its own arguments, and runs in the caller's folder
    as a plain script.
    """
    program = 'import sys; open("seen", "w").write(f"{__name__} {sys.argv[1:]}")'
    with command(tmp_path, program, arguments=("--standby", "s3cret")) as run:
        assert run.ends() == 0
    assert (tmp_path / "seen").read_text() == "__main__ ['--standby', 's3cret']"
    assert "s3cret" not in run.log


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        ('exactum.errors.SettingRefused("why")', 3, "SettingRefused: [USER_CODE] why"),
        ('exactum.errors.Unavailable("why")', 0, "Unavailable: why"),
        ('exactum.errors.Fenced("why")', 3, "Fenced: why"),
        ('exactum.errors.EpochAborted("why")', 0, "EpochAborted: why"),
    ],
)
def test_the_error_that_ends_a_script_decides(
    tmp_path: Path, error: str, status: int, said: str
) -> None:
    """One that halts or fences ends it with status 3; one that only voids the attempt is followed by
    another life. The reason is said.
    """
    program = f"{COUNTED}\nimport exactum\nexactum.KafkaSink\nif life == 0: raise {error}"
    with command(tmp_path, program, *AT_ONCE) as run:
        assert run.ends() == status
    assert lives(tmp_path) == (1 if status else 2)
    assert said in run.log


UNKNOWN = f"""{COUNTED}
from exactum import events
from exactum.errors import UnknownFailure
from exactum.spark.supervised import process
script, query_id = process.current(), "00000000-0000-0000-0000-000000000007"
script.report_run(query_id)
failed = f"[STREAM_FAILED] Query [id = {{query_id}}, runId = 8] terminated with exception: "
TRACE = "Traceback (most recent call last):\\n  File 'job.py', line 3\\n"
"""


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("body", "counted", "status"),
    [
        pytest.param(
            'error = UnknownFailure("KeyError: x")\n'
            "script.report_error(error, query_id)\nraise RuntimeError(failed + str(error))",
            3,
            3,
            id="told by exactum",
        ),
        pytest.param(
            'raise RuntimeError(failed + TRACE + "KeyError: x")', 3, 3, id="before it was called"
        ),
        pytest.param(
            "if life == 1:\n"
            "    script.report_event(events.EpochBegan(query_id, 0, 'i', None))\n"
            "    script.report_event(events.EpochCompleted(query_id, 0, 'i', 0, 1, 1, dict()))\n"
            'raise RuntimeError(failed + TRACE + "KeyError: x")',
            4,
            3,
            id="with a batch between",
        ),
        pytest.param(
            'raise RuntimeError(failed + TRACE + "ConnectionError: gone")', 5, 1, id="it may pass"
        ),
        pytest.param('raise RuntimeError(TRACE + "KeyError: x")', 5, 1, id="of no query"),
    ],
)
def test_an_unknown_failure_at_the_same_batch_ends_three_lives(
    tmp_path: Path, body: str, counted: int, status: int
) -> None:
    """Then it is the rows or the code, and a person has to look; a network may come back."""
    options = [*AT_ONCE, "--restart-attempts=4", "--start-attempts=9"]
    with command(tmp_path, f"{UNKNOWN}\n{body}", *options) as run:
        assert run.ends() == status
    assert lives(tmp_path) == counted
    assert ("so ended 3 lives at one micro-batch" in run.log) is (status == 3)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("word", "is_older"),
    [
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", False),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", True),
        ("Multiple streaming queries are concurrently using file:/x", True),
    ],
)
def test_of_two_runs_sparks_logs_end_the_older_one(
    tmp_path: Path, word: str, is_older: bool
) -> None:
    """Spark finds another run's files: who was at work ends with status 3; who has just begun, beside
    an older one, is started again.
    """
    completes = "script.report_event(events.EpochCompleted(query_id, 0, 'i', 0, 1, 1, dict()))"
    body = f"{completes if is_older else ''}\nif life == 0: raise RuntimeError(failed + {word!r})"
    with command(tmp_path, f"{UNKNOWN}\n{body}", *AT_ONCE) as run:
        assert run.ends() == (3 if is_older else 0)
    assert lives(tmp_path) == (1 if is_older else 2)
    assert ("with Fenced: Spark" in run.log) is is_older


SLOW_END = f"""{COUNTED}
import atexit, signal, time
import exactum
from exactum import events
from exactum.errors import Fenced
from exactum.spark.supervised import process, standby
if life == 0:
    process.current().report_event(events.EpochCompleted("q", 0, "i", 0, 1, 1, dict()))
    while not Path("waits").exists():
        time.sleep(0.01)
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    raise Fenced("another one runs it")
Path("waits").touch()
standby.wait_for_turn()
Path("turn").touch()
"""


@pytest.mark.deep
@pytest.mark.parametrize("wakes_up", [True, False])
def test_who_has_said_why_nobody_may_go_on_is_not_frozen(tmp_path: Path, wakes_up: bool) -> None:
    """A fenced script that is slow to end, or never does: its standby does not take the query
    back.
    """
    with command(tmp_path, SLOW_END, "--standby", "--standby-timeout", "2 s") as run:
        run.until(lambda: "another one runs it" in run.log, "it has said why")
        time.sleep(4)
        if wakes_up:
            signal_session(run.pids()[0], signal.SIGCONT)
        assert run.ends() == 3
    assert "takes over" not in run.log
    assert not (tmp_path / "turn").exists()


@pytest.mark.deep
def test_a_mistake_in_the_script_is_not_tried_for_ever(tmp_path: Path) -> None:
    """A script that ends before any query of it has begun is given up soon, and the last line says
    with what; an error that another start may mend is left to the restart strategy.
    """
    options = ["--restart-delay", "10 ms"]
    with command(tmp_path, f"{COUNTED}\nfrom exactum import KafkaSink\n[][0]", *options) as run:
        assert run.ends() == 1
    assert lives(tmp_path) == 3
    assert run.log.splitlines()[-1].endswith(
        "it is not started again: it ended 3 times before any query of it began (--start-attempts "
        "3), with IndexError: list index out of range"
    )
    (tmp_path / "count").unlink()
    down = f'{COUNTED}\nimport exactum\nif life < 4: raise exactum.errors.Unavailable("down")'
    with command(tmp_path, down, *options, "--start-attempts", "2") as run:
        assert run.ends() == 0
    assert lives(tmp_path) == 5


def test_nothing_of_a_dead_life_is_left_when_the_next_begins(tmp_path: Path) -> None:
    """What the script has started dies with it before the next life, even in a process group of
    its own and deaf.
    """
    orphan = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', "
        "flush=True); time.sleep(60)"
    )
    program = f"""{COUNTED}
import subprocess
from exactum.local.own_process import members
alive = members(int(Path("leader").read_text())) if life else []
Path("leader").write_text(str(os.getpid()))
if alive:
    Path("left").write_text(str(alive))
if life == 2:
    sys.exit(0)
started = subprocess.Popen([sys.executable, "-c", {orphan!r}], stdout=subprocess.PIPE, process_group=0)
started.stdout.readline()
os.kill(os.getpid(), 9)
"""
    if sys.version_info < (3, 11):
        program = program.replace("process_group=0", "preexec_fn=os.setpgrp")
    with command(tmp_path, program, *AT_ONCE, "--restart-attempts=2") as run:
        assert run.ends() == 0
    assert lives(tmp_path) == 3
    assert not (tmp_path / "left").exists()


WITH_EXACTUM = """
from exactum.spark.supervised import process
process.current().report_run("q")  # so the supervisor knows that exactum is there
"""


@pytest.mark.parametrize(
    ("program", "number"), [("", signal.SIGTERM), (WITH_EXACTUM, signal.SIGINT)]
)
def test_a_script_without_queries_is_ended_by_sigterm(
    tmp_path: Path, program: str, number: int
) -> None:
    """There is nothing to wait for: the script gets SIGTERM at once, and that is an orderly end; where
    exactum is not there, or no query runs yet.
    """
    waits = "import time\nprint('ready', flush=True)\ntime.sleep(1000)"
    with command(tmp_path, f"{program}\n{waits}") as run:
        run.says("ready")
        run.signal(number)
        assert run.ends() == 0
    assert ("no query to stop" in run.log) is bool(program)


@pytest.mark.deep
@pytest.mark.parametrize(
    "begin",
    [
        "threading.Thread(target=time.sleep, args=(300,)).start()",
        "ThreadPoolExecutor().submit(time.sleep, 300)",
    ],
)
def test_a_failed_script_whose_threads_go_on(tmp_path: Path, begin: str) -> None:
    """Its main thread has ended with an error; a thread of its own would keep it for ever, and
    nobody would start it again. It has used nothing of exactum.
    """
    program = f"""{COUNTED}
import threading, time
from concurrent.futures import ThreadPoolExecutor
from exactum.errors import Unavailable
if life == 1:
    sys.exit(0)
{begin}
raise Unavailable("no server")
"""
    with command(tmp_path, program, *AT_ONCE) as run:
        assert run.ends() == 0
    assert lives(tmp_path) == 2
    assert "after the main thread ended with an error others go on" in run.log
    assert "ended with status 1 with Unavailable: no server" in run.log


@pytest.mark.deep
def test_a_script_that_prints_an_error_by_itself_goes_on(tmp_path: Path) -> None:
    """It calls the hook with something that it has dealt with; its queries are in other threads."""
    program = """
import sys, threading, time
from exactum.spark.supervised import process
process.current()
try:
    1 / 0
except ZeroDivisionError:
    sys.excepthook(*sys.exc_info())
threading.Thread(target=time.sleep, args=(20,)).start()
"""
    with command(tmp_path, program) as run:
        assert run.ends() == 0
    assert "ZeroDivisionError" in run.log
    assert "after the main thread ended" not in run.log


def test_a_second_signal(tmp_path: Path) -> None:
    """A script that does not end is told again by the next signal, and killed by the one after;
    the status says it.
    """
    with command(tmp_path, STUBBORN) as run:
        run.says("ready")
        run.signal(signal.SIGTERM)
        run.says("not yet")
        run.signal(signal.SIGTERM)
        assert run.ends() == 1
    assert "is killed" in run.log


@pytest.mark.usefixtures("in_a_terminal")
def test_a_terminal_that_hangs_up_several_times_is_one_signal() -> None:
    """A second one would end the script at once."""
    with Signals() as signals:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        assert signals.taken() == 2


@pytest.mark.usefixtures("in_a_terminal")
def test_a_stop_while_nothing_runs(tmp_path: Path) -> None:
    """Between two lives a signal ends it at once, also that of a terminal which is closed."""
    options = ["--restart-delay", "1 h"]
    with command(tmp_path, "raise SystemExit(1)", *options) as run:
        run.says("started again in 3600.0 s")
        run.signal(signal.SIGHUP)
        assert run.ends() == 0


def test_the_script_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    """A supervisor that is killed leaves nobody who stands by: a standby ends by itself."""
    program = """
import exactum
print("ready", flush=True)
from exactum.spark.supervised import process, standby
standby.wait_for_turn()  # as a start does
process.current().report_event(exactum.events.EpochCompleted("q", 0, "i", 0, 0, 0))  # then a standby is started
import time
time.sleep(400)
"""
    with command(tmp_path, program, "--standby", "--standby-timeout", "60 s") as run:
        run.says("stands by")
        run.signal(signal.SIGKILL)
        run.until_gone(run.pids()[1])
        assert "exactum: This process stood by" in run.log and "Start exactum run again" in run.log
        assert "Traceback" not in run.log


@pytest.mark.parametrize("begins", ["import exactum", "from exactum.errors import Unavailable"])
def test_a_script_without_queries_that_is_left_alone_ends(tmp_path: Path, begins: str) -> None:
    """The supervisor is killed while the script, which has only imported exactum, does something else."""
    program = f"import time\n{begins}\nprint('ready', flush=True)\ntime.sleep(1000)"
    with command(tmp_path, program) as run:
        run.says("ready")
        run.signal(signal.SIGKILL)
        run.until_gone(run.pids()[0])
    assert "exactum run is gone" in run.log


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stop-timeout", "60"], "a number and its unit"),
        (["--restart-attempts", "-1"], "-1"),
        (["--standby", "--standby-timeout", "0 s"], "at least 2 s"),
        (["--standby", "--standby-timeout", "1900 ms"], "at least 2 s"),
        (["--standby-timeout", "10 s"], "give --standby as well"),
        (["--restart-delay", "10 s", "--restart-delay-max", "1 s"], "shorter than --restart-delay"),
        (["--listen", "here:there"], "[HOST:]PORT"),
        (["--submit", "no-such-submit --master local"], "'no-such-submit'"),
        (["--submit", ""], "no program ''"),
        (["--submit", "sh -c 'x"], "is no command"),
        (["--submit", "sh --deploy-mode cluster"], "another machine"),
        (["--submit", "sh --conf spark.submit.deployMode=cluster"], "another machine"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    tmp_path: Path, options: list[str], said: str
) -> None:
    """A duration without a unit, numbers that make no sense, and what cannot be submitted: one message,
    and the script is not started.
    """
    (tmp_path / "app.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    done = CliRunner().invoke(main, ["run", str(tmp_path / "app.py"), *options])
    assert done.exit_code == 2
    *_, last = done.stderr.splitlines()
    assert said in last
    if not last.startswith("Error: "):  # which is click's word
        assert done.stderr == f"{last}\n"
        assert last.startswith("exactum: [COMMAND_ARGUMENT] --")
        assert last.endswith("Nothing was started.")
    assert not (tmp_path / "ran").exists()
