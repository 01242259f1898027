"""The program of a Kafka broker: its version and jars, the archive of its classes, its command
line.
"""

from __future__ import annotations

import os
from pathlib import Path

from exactum.java.class_archive import ClassArchive, archive_of
from exactum.java.jars import SCALA_VERSION, JarSet, cached, dependency, recipe
from exactum.java.program import java_program

KAFKA_VERSION = "4.3.1"
SLF4J_VERSION = "1.7.36"  # the line that Kafka's own slf4j-api belongs to

LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
    # Hundreds of lines with every setting of every part, at each start.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)

# What a real broker runs with: benchmarks run on a cluster of one node.
LASTING_OPTIONS = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def broker_jars() -> list[Path]:
    """Return the class path of a Kafka broker, retrieved at the first call (some 20 s).

    Raises LocalServerError.
    """
    return cached(broker_set())


def broker_set() -> JarSet:
    """Return what Ivy is asked for."""
    return JarSet(
        "broker",
        KAFKA_VERSION,
        f"a local Kafka {KAFKA_VERSION} broker",
        recipe(
            dependency("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
            dependency("org.slf4j", "slf4j-simple", SLF4J_VERSION),
        ),
    )


def kafka_archive() -> ClassArchive:
    """The archive of a broker's classes; it may not be made yet.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    return archive_of("kafka", broker_jars())


def kafka_command(program: str, heap_mb: int, *options: str) -> list[str]:
    """Return the command that runs a Java class of the broker; its arguments are to be appended.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    return [
        java_program("java"),
        f"-Xmx{heap_mb}m",
        "-Xshare:auto",
        "-Djava.awt.headless=true",
        *LOG_OPTIONS,
        *options,
        *("-cp", os.pathsep.join(str(jar) for jar in broker_jars())),
        program,
    ]
