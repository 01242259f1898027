"""The same script without ``exactum run``: by Python, or below spark-submit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from exactum.java.program import spark_java_options
from exactum.local import columnar_kafka_jar, spark_kafka_jars
from exactum.spark.settings import is_one_process
from exactum.spark.startup import class_archive
from tests.kit.run.run_command import SESSION, Command
from tests.kit.standalone.machines import SPARK_HOME


class BareCommand(Command):
    """``options`` are the words before the script."""

    @staticmethod
    def words(script: Path, options: Sequence[str], arguments: Sequence[str]) -> Sequence[object]:
        return [*options, script, *arguments]


SETTINGS = {name: value for name, value in SESSION.items() if name != "master"}


def spark_submit(master: str = "local[2]") -> list[str]:
    """Spark's own, with what a script needs to read Kafka; in one process it starts as fast as a
    local session.
    """
    settings = {**SETTINGS, "spark.driver.memory": "512m", "spark.ui.enabled": "false"}
    jars = [columnar_kafka_jar()]
    if is_one_process(master):
        settings[class_archive.CLASS_PATH] = os.pathsep.join(map(str, spark_kafka_jars()))
        options = class_archive.start_options(class_archive.spark_archive())
        settings[class_archive.OPTIONS] = spark_java_options(options)
    else:
        jars += spark_kafka_jars()
    words = [word for name in settings for word in ("--conf", f"{name}={settings[name]}")]
    program = str(SPARK_HOME / "bin" / "spark-submit")
    return [program, "--master", master, "--jars", ",".join(map(str, jars)), *words]
