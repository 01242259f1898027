"""Makes the class archive of Spark's drivers, where it is missing: a broker, one driver that is
trained, one rename.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.java.class_archive import ClassArchive
from exactum.local import LocalKafka
from exactum.ops.environment import environment
from exactum.spark.runtime.driver_archive import spark_archive

TIMEOUT_S = 300
LOG_CHARS_SHOWN = 2000


def make_class_archive(*, echo: Callable[[str], None] = lambda _line: None) -> Path:
    """Make the archive for this Java and this PySpark if it is missing; return where it is.

    Two that make it at once both train, and the first one's is kept.

    Args:
        echo: is told what happens, line by line.

    Raises:
        LocalServerError: the broker or the driver failed.
    """
    archive = spark_archive()
    if archive.path.exists():
        echo(f"The class archive is there: {archive.path}")
        return archive.path
    echo("Training a driver, once for this Java and this PySpark (under a minute) ...")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exactum-training-") as name, LocalKafka() as kafka:
        _train(archive, kafka, Path(name))
    echo(
        f"Made {archive.path} in {time.monotonic() - began_s:.0f} s. Local sessions start with it "
        "from now on."
    )
    return archive.path


def _train(archive: ClassArchive, kafka: LocalKafka, folder: Path) -> None:
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("out", partitions=2)
    command = [
        sys.executable,
        "-m",
        "exactum.ops.training.query",
        kafka.bootstrap_servers,
        str(folder),
    ]
    log = folder / "log"
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
                [*command, *archive.making_options(folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment(),
                timeout=TIMEOUT_S,
                check=False,
            )
            well, status = ended.returncode == 0, f"ended with status {ended.returncode}"
        except subprocess.TimeoutExpired:
            well, status = False, f"did not end within {TIMEOUT_S} s"
    # What a JVM that ended badly has left may be half an archive.
    if not (well and archive.keep_made(folder)):
        text = log.read_text(errors="replace")[-LOG_CHARS_SHOWN:]
        raise LocalServerError(
            f"The driver that should leave its class archive {status}. Its last words:\n{text}"
        )
