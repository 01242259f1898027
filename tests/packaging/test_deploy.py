"""What ``deploy/kubernetes`` has: manifests of Kubernetes' own schemas, an image by the rules of
hadolint, and the same script in all of it. ``make kubernetes`` runs them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from exactum.ops.run.values import duration
from exactum.spark.run.termination import SETTING, TIMEOUT_S
from tests.kit.environment import ROOT
from tests.kit.python import ran

FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS = {
    f"{path.stem}: {each['kind']}": each
    for path in sorted(FOLDER.glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
}
KUBERNETES = "1.36"
"""The version that ``make kubernetes`` builds."""


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_keeps_to_the_schema(name: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], KUBERNETES, strict=True)


def test_what_breaks_a_schema_is_seen() -> None:
    wrong = {**MANIFESTS["driver: Pod"], "spec": {"container": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_the_image_keeps_to_the_rules_of_its_linter() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = ran([program, "--no-color", FOLDER / "Dockerfile"])
    assert (done.stdout, done.stderr) == ("", "")


def pods() -> list[dict[str, Any]]:
    return [
        MANIFESTS["driver: Pod"]["spec"],
        MANIFESTS["statefulset: StatefulSet"]["spec"]["template"]["spec"],
    ]


def test_a_pod_has_time_to_stop() -> None:
    """Longer than exactum may wait, and for Spark to stop after that."""
    driver, replica = (pod["terminationGracePeriodSeconds"] for pod in pods())
    (command,) = (each["command"] for each in pods()[1]["containers"])
    assert replica > duration(command[command.index("--stop-timeout") + 1]) + 20
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    given = int(page.partition(f"{SETTING}=")[2].split()[0])
    assert driver > given > TIMEOUT_S


def test_all_pods_have_one_image_and_one_environment() -> None:
    each = [one for pod in pods() for one in (*pod["initContainers"], *pod["containers"])]
    assert len({one["image"] for one in each}) == 1
    assert len({str(one["env"]) for one in each}) == 1
    script = (FOLDER / "orders.py").read_text()
    for name in ("BROKERS", "CHECKPOINT"):
        assert f'os.environ["{name}"]' in script
