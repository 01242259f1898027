"""The class path of a local session's JVM, where that is exactum's to say: the connector's jars
are on it.

Of jars in ``spark.jars`` Spark reads the classes with a class loader of its own, which takes none
from a class archive, and it sends itself each jar over a socket, to keep a copy for its tasks: 10
MB, a second of CPU. exactum's own jars are small, and written anew by every install, with which an
archive made for them would be lost. They stay in ``spark.jars``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from exactum.spark.jvm import java_class
from exactum.spark.settings import is_one_process

SETTING = "spark.driver.extraClassPath"
OTHERS = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
"""In the environment: somebody else may say what is on the class path, or has started the JVM."""


def is_ours(given: Mapping[str, str]) -> bool:
    """Whether the JVM of a session with these settings, the master among them, is yet to start, and
    nobody else says what is on its class path.
    """
    return (
        not java_class.has_started()
        and is_one_process(given.get("spark.master", ""))
        and SETTING not in given
        and not any(name in os.environ for name in OTHERS)
    )
