"""The command line of Kafka's Java programs: heap, collector, log and class path."""

from __future__ import annotations

import os

from exactum.local.jars import broker_jars
from exactum.local.java import java_program

LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
    # Hundreds of lines with every setting of every part, at each start.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)

# A JVM that is up at once and stays small: for short programs and for several nodes.
SMALL_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# What a real broker runs with: benchmarks run on a cluster of one node.
LASTING_OPTIONS = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


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
