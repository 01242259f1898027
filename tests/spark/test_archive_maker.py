"""Who makes the class archive, when, and what is left if that goes wrong."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exactum.errors import LocalServerError
from exactum.java.class_archive import ClassArchive
from exactum.ops import process_session
from exactum.spark.startup import archive_maker, class_archive
from tests.kit.environment import environment
from tests.kit.spark.own_archive import archive_of_its_own, list_few_classes
from tests.kit.waiting import WAIT_MAX_S

MAKE = "from exactum.spark.startup import archive_maker; archive_maker.make()"
TIMEOUT_S = WAIT_MAX_S


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """The one of a cache of the test's own, not made."""
    return archive_of_its_own(tmp_path, monkeypatch)


@pytest.fixture
def few_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real archive, which is made in a second."""
    list_few_classes(tmp_path, monkeypatch)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with room for a maker, whatever this one has. Returns its folder of limits."""
    limits = tmp_path / "cgroup"
    limits.mkdir()
    monkeypatch.setattr(class_archive, "CGROUP", limits)
    monkeypatch.setattr(class_archive, "DISK_BYTES_MIN", 0)
    monkeypatch.setattr(class_archive, "MEMORY_BYTES_MIN", 0)
    monkeypatch.delenv("CI", raising=False)
    return limits


@pytest.fixture
def makers() -> Iterator[Callable[[], set[int]]]:
    """What finds the makers that this process has started; they are killed in the end."""
    before = process_session.children(os.getpid())

    def found() -> set[int]:
        pids = set()
        for pid in process_session.children(os.getpid()) - before:
            with contextlib.suppress(OSError):  # it has just ended
                if class_archive.MAKER in Path(f"/proc/{pid}/cmdline").read_text():
                    pids.add(pid)
        return pids

    yield found
    for pid in found():
        os.killpg(pid, signal.SIGKILL)


def awaited(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def is_locked(archive: ClassArchive) -> bool:
    with archive.lock_path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def files(archive: ClassArchive) -> list[str]:
    return sorted(path.suffix for path in archive.path.parent.iterdir())


@pytest.mark.usefixtures("room")
def test_only_the_second_session_that_misses_it_has_it_made(
    archive: ClassArchive,
    makers: Callable[[], set[int]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """By a process that outlives the session, and gives way to everybody."""
    class_archive.miss(archive)
    assert capfd.readouterr().err == ""
    assert not makers()
    class_archive.miss(archive)
    (told,) = capfd.readouterr().err.splitlines()
    assert str(archive.path) in told, "where"
    assert "200 MB" in told, "how much"
    assert f"{class_archive.ENABLED}=false" in told, "how to switch it off"
    # A process that has just begun to run another program has no command line for a moment.
    awaited(lambda: len(makers()) == 1, "one maker")
    (maker,) = makers()
    assert os.getsid(maker) == maker, "Ctrl-C in the terminal is not for it"
    awaited(lambda: os.getpriority(os.PRIO_PROCESS, maker) == 19, "it gives way")
    awaited(lambda: os.sched_getscheduler(maker) == os.SCHED_IDLE, "it gives way")
    oom = Path(f"/proc/{maker}/oom_score_adj")
    awaited(lambda: oom.read_text().strip() == "1000", "it is the first to go")
    group = Path(f"/proc/{maker}/autogroup")
    if group.exists():
        awaited(lambda: group.read_text().strip().endswith("nice 19"), "its group gives way")


@pytest.mark.usefixtures("room")
def test_many_sessions_at_once_start_one_maker(
    archive: ClassArchive, makers: Callable[[], set[int]], capfd: pytest.CaptureFixture[str]
) -> None:
    """It holds the lock from the moment it is started, and no try is lost."""
    for _ in range(9):
        class_archive.miss(archive)
    assert capfd.readouterr().err.count("making the class archive") == 1
    awaited(lambda: len(makers()) == 1, "one maker")
    assert archive.lock_path.read_bytes() == b".."


@pytest.mark.parametrize("stderr", [None, "closed"])
@pytest.mark.usefixtures("room", "makers")
def test_a_session_starts_whoever_does_not_listen(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, stderr: str | None
) -> None:
    closed = open(os.devnull, "w")  # noqa: SIM115
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    class_archive.miss(archive)
    class_archive.miss(archive)


@pytest.mark.usefixtures("room")
def test_after_three_tries_nobody_tries_again(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(class_archive, "MAKER", "exactum._version")  # ends, and makes none
    told = []
    for _ in range(7):
        class_archive.miss(archive)
        awaited(lambda: not is_locked(archive), "the maker of the session before ends")
        told.append(capfd.readouterr().err)
    made = [text.startswith("exactum: making") for text in told]
    assert made == [False, True, True, True, False, False, False]
    assert "was not made in 3 tries" in told[4]
    assert "exactum local class-archive" in told[4]
    assert told[5:] == ["", ""]


@pytest.mark.usefixtures("room")
def test_a_session_beside_the_maker_has_nothing_to_say(
    archive: ClassArchive, makers: Callable[[], set[int]], capfd: pytest.CaptureFixture[str]
) -> None:
    class_archive.miss(archive)
    with archive.lock_path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(5):
            class_archive.miss(archive)
    assert capfd.readouterr().err == ""
    assert not makers()
    class_archive.miss(archive)
    assert "making" in capfd.readouterr().err, "the ones before are no tries"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            lambda limits, patch: patch.setattr(class_archive, "DISK_BYTES_MIN", 2**62),
            "the disk of",
        ),
        (
            lambda limits, patch: patch.setattr(class_archive, "MEMORY_BYTES_MIN", 2**62),
            "of memory left",
        ),
        (lambda limits, patch: (limits / "cpu.max").write_text("50000 100000"), "processor time"),
        (lambda limits, patch: (limits / "memory.max").write_text("2000000\n"), "limit of memory"),
        (lambda limits, patch: patch.setenv("CI", "true"), "CI"),
        (lambda limits, patch: patch.setattr(sys, "frozen", True, raising=False), "no Python"),
        (lambda limits, patch: patch.setattr(sys, "executable", "/usr/sbin/uwsgi"), "no Python"),
        (lambda limits, patch: patch.setattr(sys, "executable", None), "no Python"),
    ],
    ids=[
        "small disk",
        "little memory",
        "limit of processors",
        "limit of memory",
        "a CI run",
        "a frozen program",
        "another program",
        "no program",
    ],
)
def test_where_there_is_no_room_it_is_left_and_logged(
    archive: ClassArchive,
    room: Path,
    makers: Callable[[], set[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path, pytest.MonkeyPatch], object],
    told: str,
) -> None:
    spoil(room, monkeypatch)
    with caplog.at_level(logging.INFO, "exactum"):
        for _ in range(6):
            class_archive.miss(archive)
    assert len(caplog.messages) == 5
    assert all(told in line for line in caplog.messages)
    assert not makers()
    assert archive.lock_path.read_bytes() == b".", "none of them was a try"


def test_a_container_without_limits_has_room(room: Path) -> None:
    (room / "cpu.max").write_text("max 100000\n")
    (room / "memory.max").write_text("max\n")
    assert class_archive.unfit(room) is None


def test_a_cache_that_cannot_be_written_is_logged(
    archive: ClassArchive, caplog: pytest.LogCaptureFixture
) -> None:
    archive.path.parent.write_text("a file, where the folder should be")
    with caplog.at_level(logging.INFO, "exactum"):
        class_archive.miss(archive)
    (line,) = caplog.messages
    assert str(archive.path.parent) in line
    with pytest.raises(LocalServerError, match="EXACTUM_CACHE"):
        archive_maker.make()


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.usefixtures("few_classes", "room")
def test_of_two_at_once_one_makes_it(archive: ClassArchive, makers: Callable[[], set[int]]) -> None:
    """The other one leaves at once, or waits and finds it there."""
    class_archive.miss(archive)
    with archive.lock_path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        class_archive.miss(archive)
        assert not makers()
    told: list[str] = []
    waited = threading.Event()

    def hear(line: str) -> None:
        told.append(line)
        waited.set()

    with archive.lock_path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=archive_maker.make, kwargs={"echo": hear})
        thread.start()
        assert waited.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)
    made = archive.path.stat()
    assert archive_maker.make(echo=told.append) == archive
    assert archive.path.stat().st_ino == made.st_ino
    assert [line.split()[0] for line in told] == ["Another", "Making", "Made", "The"]
    assert files(archive) == [".jsa"], "nothing else is left"


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.usefixtures("few_classes")
def test_the_ones_used_last_are_kept(archive: ClassArchive) -> None:
    archive.path.parent.mkdir()
    others = [archive.path.with_name(f"driver-{number}.jsa") for number in range(4)]
    for used_s, other in enumerate(others):
        other.write_text("of another Java")
        os.utime(other, (used_s, used_s))
    brokers = archive.path.with_name("kafka-1.jsa")
    brokers.write_text("a broker's")
    assert class_archive.reading_options(ClassArchive(others[0]))
    recent = archive.path.with_name("driver-recent.jsa")
    recent.write_text("used within the month, if not as lately")
    os.utime(recent, (time.time() - 86_400,) * 2)
    for number in range(2):
        other = archive.path.with_name(f"driver-more{number}.jsa")
        other.write_text("used just now")
        others.append(other)
    half = archive.path.with_name("driver-killed.part")
    half.write_text("of a maker that was killed long ago")
    os.utime(half, (0, 0))
    archive_maker.make()
    assert sorted(archive.path.parent.iterdir()) == sorted(
        [archive.path, others[0], *others[4:], recent, brokers]
    )


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.usefixtures("few_classes")
def test_a_jvm_that_fails_leaves_no_archive_and_is_heard(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_maker, "SILENCE", "-XX:SharedArchiveFile=/nowhere/x.jsa")
    with pytest.raises(LocalServerError, match="/nowhere/x.jsa"):
        archive_maker.make()
    assert files(archive) == [".lock", ".log"]
    assert archive.reading_options() == []


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.usefixtures("few_classes", "room")
def test_a_killed_maker_leaves_nothing_that_a_start_would_take(
    archive: ClassArchive, makers: Callable[[], set[int]]
) -> None:
    """Its JVM is the only writer for as long as it lives; the next maker begins anew."""
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKE], env=environment(), start_new_session=True
    )
    try:
        running: list[int] = []

        def dumping() -> bool:
            for pid in process_session.members(maker.pid) - {maker.pid}:
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                    if "-Xshare:dump" in words:
                        running.append(pid)
            return bool(running)

        awaited(dumping, "the JVM dumps")
        maker.kill()
        os.waitid(os.P_PID, maker.pid, os.WEXITED | os.WNOWAIT)
        assert is_locked(archive), "the JVM holds the lock that its maker had"
        class_archive.miss(archive)
        assert not makers()
    finally:
        process_session.kill_all(maker.pid, set())
        maker.wait()
    awaited(lambda: not is_locked(archive), "the lock goes with the JVM")
    archive.path.with_suffix(".part").write_text("half an archive")
    assert archive.reading_options() == []
    assert archive_maker.make() == archive
    assert files(archive) == [".jsa"]
