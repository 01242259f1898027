"""Jars and classes of the contenders in Java, and of the reader: retrieved and compiled once, into
exactum's cache.

``bench-peers`` needs a JDK: ``javac``, besides the ``java`` that everything else needs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from bench.loader import DRIVERS
from bench.peers.settings import JAVA_HEAP_MB
from exactum.errors import LocalServerError
from exactum.java import jars
from exactum.java.program import java_program
from exactum.local import broker

FLINK_VERSION = "2.2.0"
FLINK_KAFKA_VERSION = "5.0.0-2.2"
FLINK_JDBC_VERSION = "4.0.0-2.0"  # the newest line there is; it runs with Flink 2.2
COMPILER = ("-m", "jdk.compiler/com.sun.tools.javac.Main")
COMPILE_TIMEOUT_S = 120
SOURCES = Path(__file__).parent / "java"


def flink_jars() -> list[Path]:
    flink = "org.apache.flink"
    org, name, version, _ = DRIVERS["postgres"]
    return _retrieved(
        "peer-flink",
        FLINK_VERSION,
        f"Flink {FLINK_VERSION}",
        (flink, "flink-streaming-java", FLINK_VERSION),
        (flink, "flink-clients", FLINK_VERSION),
        (flink, "flink-connector-base", FLINK_VERSION),
        (flink, "flink-connector-kafka", FLINK_KAFKA_VERSION),
        (flink, "flink-connector-jdbc-postgres", FLINK_JDBC_VERSION),
        (org, name, version),
        ("org.slf4j", "slf4j-simple", broker.SLF4J_VERSION),
    )


def streams_jars() -> list[Path]:
    """Of Kafka Streams; the reader uses its Kafka client."""
    return _retrieved(
        "peer-streams",
        broker.KAFKA_VERSION,
        f"Kafka Streams {broker.KAFKA_VERSION}",
        ("org.apache.kafka", "kafka-streams", broker.KAFKA_VERSION),
        ("org.slf4j", "slf4j-simple", broker.SLF4J_VERSION),
    )


def command(name: str, class_path: list[Path], heap_mb: int = JAVA_HEAP_MB) -> list[str]:
    """The command that runs ``java/NAME.java``, compiled first where it is not.

    Raises:
        LocalServerError: there is no JDK, or it does not compile.
    """
    folder = compiled(name, class_path)
    return [
        java_program("java"),
        f"-Xmx{heap_mb}m",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        # Flink's and Kryo's serializers look into the JDK's own classes.
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-cp",
        os.pathsep.join(map(str, [folder, *class_path])),
        name,
    ]


def compiled(name: str, class_path: list[Path]) -> Path:
    source = SOURCES / f"{name}.java"
    digest = hashlib.sha256(source.read_bytes())
    for jar in class_path:
        digest.update(jar.name.encode())
    folder = jars.cache_folder() / "classes" / f"peers-{name}-{digest.hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".peers-", dir=folder.parent) as work:
        made = Path(work) / "made"
        _compile(source, class_path, made)
        made.rename(folder)
    return folder


def _compile(source: Path, class_path: list[Path], folder: Path) -> None:
    options = ["-nowarn", "-proc:none", "-cp", os.pathsep.join(map(str, class_path))]
    command = [java_program("java"), *COMPILER, *options, "-d", str(folder), str(source)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S
    )
    if done.returncode != 0:
        raise LocalServerError(f"{source} could not be compiled: {done.stdout}{done.stderr}")


def _retrieved(name: str, version: str, purpose: str, *modules: tuple[str, str, str]) -> list[Path]:
    recipe = jars.recipe(*(jars.dependency(*module) for module in modules))
    return jars.cached(jars.JarSet(name, version, purpose, recipe))
