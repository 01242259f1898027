"""Two ways to run a query on Kubernetes, killed again and again: what ``make kubernetes`` shows.

    PYTHONPATH=. python tests/smoke/kubernetes.py [cluster] [statefulset] [--kills 4]

The API server and etcd are real, built from source (tests/kit/kubernetes). A kubelet and a
controller of the tests make and run the pods as processes of this machine, with the manifests and the script
of deploy/kubernetes. At the end a reader compares both topics with what was sent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from exactum.local import LocalKafka, columnar_kafka_jar, spark_kafka_jars
from exactum.protocol.model import Decision, DecisionRecord
from tests.kit.crash import oracle
from tests.kit.environment import ROOT, environment
from tests.kit.kafka.broker import producer_to
from tests.kit.kubernetes import binaries
from tests.kit.kubernetes.control_plane import TOKEN, Api, ControlPlane
from tests.kit.kubernetes.kubelet import Image, Kubelet, Pod
from tests.kit.python import ran
from tests.kit.standalone.machines import JVM_OPTIONS, SPARK_HOME
from tests.kit.waiting import WAIT_MAX_S

MANIFESTS = ROOT / "deploy" / "kubernetes"
TARGETS = ("shouted", "audit")
IMAGE = "orders:1"
RECORDS_PER_STEP = 20
STEP_S = 0.1
GRACE_S = 120
COMMIT = Decision.COMMIT


@dataclass
class World:
    """A cluster, its kubelet, and a Kafka that gets orders all the time."""

    api: Api
    kubelet: Kubelet
    kafka: LocalKafka
    folder: Path
    sent: list[tuple[str, str]]
    produces: threading.Event

    def manifests(self, name: str) -> Iterator[dict[str, Any]]:
        """A file of deploy/kubernetes, with this Kafka."""
        text = (MANIFESTS / name).read_text().replace("kafka:9092", self.kafka.bootstrap_servers)
        yield from yaml.safe_load_all(text)

    def seen(self) -> int:
        """How many records of one target a reader with read_committed sees."""
        return len(oracle.read_all(self.kafka.bootstrap_servers, [TARGETS[0]]))

    def until(
        self, reached: Callable[[], Any], what: str, pod: str = "", poll_s: float = 0.1
    ) -> None:
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not reached():
            if time.monotonic() > deadline_s:
                last = self.kubelet.pod(pod) if pod else None
                log = "" if last is None else f"\n---- its log ends:\n{last.log[-6000:]}"
                raise SystemExit(f"not within {WAIT_MAX_S:.0f} s: {what}{log}")
            time.sleep(poll_s)

    def goes_on(self, pod: str) -> None:
        """Wait until more is visible than now."""
        before = self.seen()
        self.until(lambda: self.seen() > before, f"{pod} writes", pod)

    def decides(self, claim: str, pod: str) -> None:
        """Wait for the next decision that is recorded, and be there before it is carried out."""
        folder = self.kubelet.folder / "claims" / claim / "orders" / "exactum" / "decisions"
        before = {*folder.glob("[0-9]*.json")}
        self.until(lambda: {*folder.glob("[0-9]*.json")} - before, f"{pod} decides", pod, 0.001)

    def produce(self) -> None:
        """Orders, until nobody wants more."""
        producer = producer_to(self.kafka.bootstrap_servers, {"log_level": 0})
        while not self.produces.wait(STEP_S):
            for _ in range(RECORDS_PER_STEP):
                number = len(self.sent)
                key, value = f"k{number % 10}", f"n{number:07d}"
                producer.produce("orders", value, key)
                self.sent.append((key, value.upper()))
            assert producer.flush(60) == 0

    def check(self) -> None:
        """Nothing is lost, nothing is there twice, and nothing is open."""
        servers, sent = self.kafka.bootstrap_servers, defaultdict(list)
        for key, value in self.sent:
            sent[key].append(value)
        oracle.check_at_rest(servers, TARGETS, "")
        oracle.check_exact(oracle.read_all(servers, TARGETS), sent, TARGETS)


def statefulset(world: World, kills: int) -> None:
    """``exactum run`` is the pod's main process."""
    name, claim = "orders-0", "data-orders-0"
    for manifest in world.manifests("statefulset.yaml"):
        world.api.create(manifest)
    for number in range(kills):
        pod = ready(world, name)
        driver = pod.containers["driver"]
        assert (driver.get("/livez", "exactum"), driver.get("/readyz", "exactum")) == (200, 200)
        world.goes_on(name)
        if number % 3 == 0:  # all that runs in the container: it is started again in the same pod
            world.decides(claim, name)
            kill_container(world, pod, "driver")
        elif number % 3 == 1:  # the node: a new pod, whose init container comes first
            world.decides(claim, name)
            pod.kill()
            world.api.delete("pods", name, 0)
            other(world, pod)
        else:
            world.api.delete("pods", name)
            check_stopped(world, pod, "driver", 0)
            other(world, pod)
        print(f"statefulset: killed {number + 1} times", flush=True)
    finish(world, name, "driver", 0)


SUBMITTED = ("spark-kubernetes-driver", 143)
"""The container of the driver, and what it ends with where it is asked to."""


def cluster(world: World, kills: int) -> None:
    """``spark-submit --deploy-mode cluster``: driver and executors are pods."""
    for manifest in world.manifests("spark-role.yaml"):
        world.api.create(manifest)
    for number in range(kills):
        name = submit(world, number)
        pod = ready(world, name)
        world.goes_on(name)
        if number % 2 == 0:
            world.decides("orders", name)
            pod.kill()
            world.until(partial(failed, world, name), "the pod failed", name)
            world.api.delete("pods", name, 0)
        else:
            world.api.delete("pods", name)
            check_stopped(world, pod, *SUBMITTED)
        print(f"cluster: killed {number + 1} times", flush=True)
    name = submit(world, kills)
    ready(world, name)
    finish(world, name, *SUBMITTED)


def submit(world: World, number: int) -> str:
    """Submit the job; the name of its driver's pod."""
    name = f"orders-{number}-driver"
    template = world.folder / "driver.yaml"
    template.write_text(yaml.safe_dump(next(world.manifests("driver.yaml"))))
    settings = {
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.driver.podTemplateFile": template,
        "spark.kubernetes.driver.pod.name": name,
        "spark.kubernetes.driver.master": world.api.url,
        "spark.kubernetes.trust.certificates": "true",
        "spark.kubernetes.authenticate.submission.oauthToken": TOKEN,
        "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": world.folder / "token",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "orders",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.allocation.batch.delay": "200ms",
        "spark.executor.instances": 1,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(JVM_OPTIONS),
        "spark.exactum.stopTimeoutSeconds": GRACE_S - 20,
    }
    command: list[str] = [str(SPARK_HOME / "bin" / "spark-submit")]
    command += [
        "--master",
        f"k8s://{world.api.url}",
        "--deploy-mode",
        "cluster",
        "--name",
        "orders",
    ]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += ["local:///app/orders.py"]
    ran(command, SPARK_CONF_DIR=str(world.folder / "conf"))
    return name


def kill_container(world: World, pod: Pod, name: str) -> None:
    """Everything in it, as where its memory is used up. It is started again in the same pod."""
    container = pod.containers[name]
    restarts = container.restarts
    container.kill()
    world.until(lambda: container.restarts > restarts, "it is started again", pod.name)


def failed(world: World, name: str) -> bool:
    found = world.api.get("pods", name)
    return found is not None and found["status"]["phase"] == "Failed"


def ready(world: World, name: str) -> Pod:
    """Wait until the pod is ready, as its probes say."""

    def is_ready() -> bool:
        found = world.api.get("pods", name)
        conditions = [] if found is None else found["status"].get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    world.until(is_ready, f"pod {name} is ready", name)
    pod = world.kubelet.pod(name)
    assert pod is not None
    return pod


def other(world: World, pod: Pod) -> None:
    """Wait until the controller has made another one in its place."""
    world.until(
        lambda: world.kubelet.pod(pod.name) not in (None, pod), "there is a new pod", pod.name
    )


def check_stopped(world: World, pod: Pod, name: str, status: int) -> None:
    """It was asked to end, and did between two micro-batches."""
    container = pod.containers[name]
    world.until(lambda: container.status is not None, "it has ended", pod.name)
    assert container.status == status, f"{container.status}\n{pod.log[-6000:]}"
    assert "stopped after" in pod.log or "stop after" in pod.log, pod.log[-6000:]
    (checkpoint,) = list((world.kubelet.folder / "claims").glob("*/orders"))
    offsets, commits = (
        max(int(file.name) for file in (checkpoint / folder).iterdir() if file.name.isdigit())
        for folder in ("offsets", "commits")
    )
    records = (checkpoint / "exactum" / "decisions").glob("*-*.json")
    decided = [each.epoch.batch_id for each in map(record, records) if each.decision is COMMIT]
    assert max(decided, default=-1) in (commits, -1), (decided, commits, offsets)
    assert offsets - commits <= 1, (commits, offsets)  # what Spark has planned and nobody began


def record(path: Path) -> DecisionRecord:
    return DecisionRecord.from_json(json.loads(path.read_text()), str(path))


def finish(world: World, name: str, container: str, status: int) -> None:
    """No more orders; when all are visible the pod is asked to end."""
    world.produces.set()
    world.until(lambda: world.seen() >= len(world.sent), "all is visible", name)
    pod = ready(world, name)
    world.api.delete("pods", name)
    check_stopped(world, pod, container, status)
    logs = "".join(path.read_text() for path in world.kubelet.folder.glob("*/finish.log"))
    print(f"the init containers said:\n{logs}", flush=True)
    assert "micro-batch" in logs or "nothing is decided" in logs


def played(cell: Callable[[World, int], None], kills: int) -> None:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        conf = folder / "conf"
        conf.mkdir()
        jars = ",".join(f"local://{jar}" for jar in [*spark_kafka_jars(), columnar_kafka_jar()])
        settings = {
            "spark.jars": jars,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(JVM_OPTIONS),
        }
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (conf / "spark-defaults.conf").write_text(text)
        (folder / "token").write_text(TOKEN)
        kafka = opened.enter_context(LocalKafka())
        for topic in ("orders", *TARGETS):
            kafka.create_topic(topic, partitions=2)
        plane = opened.enter_context(ControlPlane(folder / "plane"))
        image = Image(
            (sys.executable, "-m", "tests.kit.kubernetes.spark_image"),
            {"/app": MANIFESTS},
            {
                **environment(SPARK_CONF_DIR=str(conf)),
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            },
        )
        kubelet = opened.enter_context(Kubelet(plane.api, folder / "pods", {IMAGE: image}))
        world = World(plane.api, kubelet, kafka, folder, [], threading.Event())
        producer = threading.Thread(target=world.produce, name="producer", daemon=True)
        producer.start()
        opened.callback(world.produces.set)
        cell(world, kills)
        producer.join()
        world.check()
        print(f"{cell.__name__}: {len(world.sent):,} records, exact in both topics", flush=True)


def main() -> None:
    cells = {"cluster": cluster, "statefulset": statefulset}
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", nargs="*", choices=[[], *cells], default=[])
    parser.add_argument("--kills", type=int, default=4)
    given = parser.parse_args()
    binaries.main()
    for name in given.cells or cells:
        played(cells[name], given.kills)


if __name__ == "__main__":
    main()
