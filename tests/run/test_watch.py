"""``exactum run --watch`` on a terminal: the table moves, and what is printed stands above it, whole and once."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.kit.run.run_command import new_world
from tests.kit.run.terminal import TerminalCommand

pytestmark = pytest.mark.slow

WATCH = ("--watch", "--listen", "none")  # what is said of serving is no matter here
TITLE = re.compile(r"(starting|running|restarting|stopping|done|failed|halted), \d+ restarts?")
PRINTER = """
import sys, time
import exactum
from exactum.spark.supervised import process

def tell(kind, *values):
    process.current().tell_event(getattr(exactum.events, kind)("q", *values))

tell("RunStarted", 0, "i", "r", "shout", "exactly once", "c", (), (), 0)
for n in range(30):
    tell("EpochCompleted", n, "i", 0, 1, 1000, {"write": 12.0, "verify": 1.0, "commit": 1234.5})
    print(f"line {n} " + "x" * 90 + " end")
    print(f"error {n} " + "y" * 90 + " end", file=sys.stderr)
    time.sleep(0.05)
sys.stdout.buffer.write("gr\\u00fcn".encode()[:3])
sys.stdout.flush()
time.sleep(0.3)
sys.stdout.buffer.write("gr\\u00fcn".encode()[3:])
print()
print()
print("\\x1b[31mred\\x1b[0m and plain")
for n in range(3000):
    print(f"burst {n}")
print("the last words", end="")
"""
HANDING_OVER = """
import os, pickle, sys, time
import exactum
from exactum.spark.supervised import process
from exactum.spark.supervised.supervisor_channel import ChannelMessage

class Loud:
    def __reduce__(self):
        said = "import sys; print('printed by the helper', flush=True); print('warned by the helper', file=sys.stderr)"
        return exec, (f"{said}; open('heard', 'w').close()",)

fields = {"query_id": "q", "path": sys.path, "trouble": ""}
process.current().tell_now(ChannelMessage("run", fields, pickle.dumps(Loud())))
n, until_s = 0, time.monotonic() + 60
while time.monotonic() < until_s and not os.path.exists("heard"):
    process.current().tell_event(exactum.events.EpochCompleted("q", n, "i", 0, 1, 1000, {"write": 12.0}))
    n += 1
    time.sleep(0.05)
"""
PRINTED = [
    *(f"line {n} {'x' * 90} end" for n in range(30)),
    "gr\u00fcn",
    "",
    "red and plain",
    *(f"burst {n}" for n in range(3000)),
    "the last words",
]
ERRORS = [f"error {n} {'y' * 90} end" for n in range(30)]


def script(folder: Path) -> Path:
    path = folder / "app.py"
    path.write_text(PRINTER)
    return path


def parts(run: TerminalCommand) -> tuple[list[str], list[str]]:
    """What was printed and said, and the last picture of the numbers, which is the only one left."""
    lines = run.screen.lines()
    titles = [
        number for number, line in enumerate(lines) if TITLE.fullmatch(line) or line.endswith("…")
    ]
    assert len(titles) == 1, f"one picture is left: {[lines[number] for number in titles]}"
    return lines[: titles[0]], lines[titles[0] :]


def check_clean(run: TerminalCommand) -> None:
    """The cursor is there again, below everything."""
    assert run.screen.cursor_shown
    assert run.screen.at_a_new_line


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("width", "height"),
    [
        (100, 30),
        pytest.param(80, 24, marks=pytest.mark.deep),
        pytest.param(24, 40, marks=pytest.mark.deep),
        (24, 6),
        (9, 9),
    ],
)
def test_what_is_printed_stands_above_the_numbers(tmp_path: Path, width: int, height: int) -> None:
    """Each line is whole, once and in order, however it came and however narrow the terminal is:
    characters cut in two, bursts, a last line without an end. One picture of the numbers is left,
    below.
    """
    with TerminalCommand(tmp_path, script(tmp_path), [*WATCH], width=width, height=height) as run:
        assert run.ends() == 0
    above, picture = parts(run)
    said = [line for line in above if " exactum run: " in line]
    assert [line for line in above if line not in said and not line.startswith("error")] == PRINTED
    assert [line for line in above if line.startswith("error")] == ERRORS
    assert (
        len(said) == 2
        and f"as process {run.pids()[0]}" in said[0]
        and "it ended by itself" in said[1]
    )
    shown = "".join(picture).replace(" ", "")
    for part in ("shout", "29", "30,000", "write", "1,234"):
        assert part in shown
    check_clean(run)


@pytest.mark.in_turn
def test_output_that_goes_elsewhere_is_left_alone(tmp_path: Path) -> None:
    """Standard output in a file: all of it is there and nothing of it on the terminal, where errors and numbers are."""
    with (tmp_path / "out").open("wb") as out:
        with TerminalCommand(tmp_path, script(tmp_path), [*WATCH], stdout=out) as run:
            assert run.ends() == 0
    printed = (tmp_path / "out").read_text().replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert printed.splitlines() == PRINTED
    above, _ = parts(run)
    assert [line for line in above if " exactum run: " not in line] == ERRORS
    check_clean(run)


@pytest.mark.in_turn
@pytest.mark.parametrize("how", ["raise SystemExit(1)", "import os; os.kill(os.getpid(), 9)"])
def test_the_last_words_of_a_script_that_dies(tmp_path: Path, how: str) -> None:
    """What it printed before its death is there, before the line that says how it ended; the end leaves no ruins."""
    path = tmp_path / "app.py"
    path.write_text(f"print('the reason')\n{how}")
    with TerminalCommand(tmp_path, path, [*WATCH, "--restart", "none"]) as run:
        assert run.ends() == 1
    above, picture = parts(run)
    assert [line.partition(" exactum run: ")[2] or line for line in above][1:3] == [
        "the reason",
        f"process {run.pids()[0]}: it {'ended with status 1' if 'Exit' in how else 'was ended by SIGKILL'}",
    ]
    assert picture[0] == "failed, 0 restarts"
    check_clean(run)


@pytest.mark.in_turn
def test_what_a_sink_prints_when_it_is_finished_stands_above(tmp_path: Path) -> None:
    """The helper process prints, too: what it is handed is a sink's own code, and client libraries warn."""
    path = tmp_path / "app.py"
    path.write_text(HANDING_OVER)
    with TerminalCommand(tmp_path, path, [*WATCH]) as run:
        assert run.ends() == 0
    above, _ = parts(run)
    assert above.count("printed by the helper") == above.count("warned by the helper") == 1
    check_clean(run)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.deep
def test_a_real_query_on_a_terminal(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The table follows the epochs, the script's own lines and ours stand above it, and SIGTERM leaves it clean."""
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=3000)
    long = "x" * 150

    def started(*arguments: object) -> TerminalCommand:
        return TerminalCommand(*arguments, width=100, height=30)  # type: ignore[arg-type]

    seen: list[tuple[int, int]] = []
    with world.run("watched", [*WATCH], by=started, drain=False, max_offsets=4, prints=long) as run:

        def moves() -> bool:
            time.sleep(0.05)
            for line in run.screen.visible():
                if found := re.match(r"│ shout +│ +(\d+) +│ +([\d,]+) +│", line):
                    row = int(found[1]), int(found[2].replace(",", ""))
                    if row not in seen:
                        seen.append(row)
            return len(seen) >= 4

        run.until(moves, "the table shows four epochs")
        run.signal(signal.SIGTERM)
        assert run.ends(120) == 0
    assert seen == sorted(seen)
    assert len({rows for _, rows in seen}) == len(seen)
    above, picture = parts(run)
    completed = [event["batch_id"] for event in world.events("EpochCompleted")]
    assert [line for line in above if line.startswith("after epoch")] == [
        f"after epoch {n}: {long}" for n in completed
    ]
    said = [line.partition(" exactum run: ")[2] for line in above if " exactum run: " in line]
    assert said[1:] == [
        "the queries stop after their epochs, within 60 s",
        f"process {run.pids()[0]}: it ended by itself",
    ]
    assert above.count("the script ends by itself") == 1
    assert picture[0] == "done, 0 restarts"
    assert any(re.match(rf"│ shout +│ +{completed[-1]} +│", line) for line in picture)
    check_clean(run)
