"""A smoke run on the oldest PySpark that exactum supports; not collected by pytest.

    python3.10 tests/smoke/oldest.py [--spark 4.0.0] [--folder FOLDER]

Makes a virtual environment with that PySpark, this package's wheel and nothing else; with it starts a broker
and a Kafka to Kafka query, kills the whole driver with SIGKILL in the middle of its work, starts it again,
and checks that the output is exact. Takes two to five minutes, most of it pip's. A folder that is given is
kept, with its environment, for the next run. Exits non-zero when something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "tests" / "cluster"
INSTALL_TIMEOUT_S = 900.0
RUN_TIMEOUT_S = 600.0
STREAM_TIMEOUT_S = 180.0
PARTITIONS = 4
RECORDS_OF_A_FEED = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--spark", default="4.0.0", help="version of PySpark (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="for the environment and the logs; default: a temporary one")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        run(arguments.inside)
        return
    with tempfile.TemporaryDirectory(prefix="exactum-smoke-") as temporary:
        folder = Path(arguments.folder or temporary).absolute()
        python = environment(folder / "venv", arguments.spark)
        command = [str(python), str(Path(__file__).resolve()), "--inside", str(folder)]
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
        sys.exit(subprocess.run(command, env=clean, cwd=folder, timeout=RUN_TIMEOUT_S, check=False).returncode)


def environment(folder: Path, spark: str) -> Path:
    """The Python of an environment with this package's wheel and the wanted PySpark."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"environment with pyspark {spark} in {folder}", flush=True)
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    with tempfile.TemporaryDirectory() as wheels:
        for step in (
            [*pip, "install", "hatchling>=1.26", "wheel", "setuptools"],
            [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, str(ROOT)],
            [*pip, "install", "--no-build-isolation", f"pyspark=={spark}"],
        ):
            subprocess.run(step, check=True, timeout=INSTALL_TIMEOUT_S)
        (wheel,) = Path(wheels).glob("exactum-*.whl")
        subprocess.run([*pip, "install", str(wheel)], check=True, timeout=INSTALL_TIMEOUT_S)
        again = [*pip, "install", "--no-deps", "--force-reinstall", str(wheel)]
        subprocess.run(again, check=True, timeout=INSTALL_TIMEOUT_S)
    return python


def run(folder: Path) -> None:
    """The smoke run itself, with the environment's Python."""
    sys.path.insert(0, str(CLUSTER))
    import pyspark
    from onlooker import Onlooker

    import exactum

    if ROOT in Path(exactum.__file__).resolve().parents and folder not in Path(exactum.__file__).resolve().parents:
        raise SystemExit(f"exactum is {exactum.__file__}, not the wheel")
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"pyspark {pyspark.__version__}, Python {version}, exactum {exactum.__version__}", flush=True)
    with exactum.local.LocalKafka() as kafka, tempfile.TemporaryDirectory(dir=folder) as work:
        for topic in ("numbers", "shouted"):
            kafka.create_topic(topic, partitions=PARTITIONS)
        onlooker = Onlooker(kafka.bootstrap_servers)
        smoke = Smoke(kafka.bootstrap_servers, onlooker, Path(work))
        smoke.lives()
        onlooker.check_at_rest("shouted")
        onlooker.check_exact(smoke.expected, "shouted")
        print(
            f"exact: {len(smoke.expected)} records, each once, over {smoke.completed()} epochs and one SIGKILL "
            f"after epoch {smoke.killed_after}; nothing is left open",
            flush=True,
        )


class Smoke:
    """One query in two lives: the first one is killed, the second one comes to its end."""

    def __init__(self, bootstrap_servers: str, onlooker: object, folder: Path) -> None:
        self.expected: set[str] = set()
        self.killed_after = 0
        self._servers = bootstrap_servers
        self._onlooker = onlooker
        self._folder = folder

    def lives(self) -> None:
        self._feed()
        with self._stream("first") as first:
            first.until(lambda: self.completed() >= 3, "three epochs were complete", STREAM_TIMEOUT_S)
            self.killed_after = self.completed()
            first.kill()
        self._feed()
        with self._stream("second") as second:
            enough = self.killed_after + 3
            second.until(lambda: self.completed() >= enough, "it had gone on", STREAM_TIMEOUT_S)
            (self._folder / "stop").touch()
            second.finishes(STREAM_TIMEOUT_S)

    def completed(self) -> int:
        path = self._folder / "events"
        return path.read_text().count('"EpochCompleted"') if path.exists() else 0

    def _feed(self) -> None:
        begin = len(self.expected)
        values = [f"n{number}" for number in range(begin, begin + RECORDS_OF_A_FEED)]
        self._onlooker.produce("numbers", values)  # type: ignore[attr-defined]
        self.expected.update(value.upper() for value in values)

    def _stream(self, name: str) -> object:
        from child import Child

        argument = {
            "folder": str(self._folder),
            "bootstrap_servers": self._servers,
            "source": "numbers",
            "output": "shouted",
            "read": {"maxOffsetsPerTrigger": 200},
            "session": {"master": "local[2]", "spark.ui.showConsoleProgress": False},
        }
        command = [sys.executable, str(CLUSTER / "stream.py"), json.dumps(argument)]
        return Child(name, command, self._folder, {**os.environ, "PYSPARK_PYTHON": sys.executable})


if __name__ == "__main__":
    began_s = time.monotonic()
    try:
        main()
    finally:
        print(f"{time.monotonic() - began_s:.0f} s", flush=True)
