"""What Spark's image runs in its pods (its entrypoint.sh), by the Spark of this environment.

The process becomes Spark's JVM, so that signals for the container come to it.
"""

from __future__ import annotations

import os
import re
import sys

from tests.kit.standalone.machines import SPARK_HOME

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


def main(role: str, *arguments: str) -> None:
    given = os.environ
    if role == "driver":
        bind = f"spark.driver.bindAddress={given['SPARK_DRIVER_BIND_ADDRESS']}"
        submit = str(SPARK_HOME / "bin" / "spark-submit")
        os.execv(submit, [submit, "--conf", bind, "--deploy-mode", "client", *arguments])
    options = [given[name] for name in given if re.fullmatch(r"SPARK_JAVA_OPT_\d+", name)]
    memory = given["SPARK_EXECUTOR_MEMORY"]
    java = ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{SPARK_HOME}/jars/*"]
    named = {
        "driver-url": re.sub(r"@[^:]+:", "@127.0.0.1:", given["SPARK_DRIVER_URL"]),
        "executor-id": given["SPARK_EXECUTOR_ID"],
        "cores": given["SPARK_EXECUTOR_CORES"],
        "app-id": given["SPARK_APPLICATION_ID"],
        "hostname": given["SPARK_EXECUTOR_POD_IP"],
        "resourceProfileId": given["SPARK_RESOURCE_PROFILE_ID"],
        "podName": given["SPARK_EXECUTOR_POD_NAME"],
    }
    words = [word for name, value in named.items() for word in (f"--{name}", value)]
    os.execvp("java", [*java, EXECUTOR, *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
