"""A kubelet that runs pods as processes of this machine.

    pod --bound--> init containers, one after another --> containers --> Succeeded or Failed
           deleted: SIGTERM to each container's first process --grace--> SIGKILL to all of it

What a container has in places of its own is put in its place by their text, in its command, its
variables and its config maps: volumes and paths of the image are folders, ports are free ones, names
of services are this machine. A claim is a folder that outlives its pods.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from exactum.local.own_process import members
from tests.kit.kubernetes.control_plane import HOST, MERGE, Api, ApiError, free_ports
from tests.kit.process_tree import signal_session

NODE = "local"
POLL_S = 0.2
LIVENESS_GRACE_S = 10
BACK_OFF_S = 0.5
"""Kubernetes' own begins with 10 s."""
SERVICE = re.compile(r"[\w.-]+\.default\.svc")
Object = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """``paths`` are folders in it and where they are here, ``entrypoint`` what it runs."""

    entrypoint: Sequence[str] = ()
    paths: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


class Kubelet:
    """Entered, it runs every pod of the API's namespace, with its log in ``folder``."""

    def __init__(self, api: Api, folder: Path, images: Mapping[str, Image]) -> None:
        self.api = api
        self.folder = folder
        self.images = images
        self._pods: dict[str, Pod] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubelet", daemon=True)

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for pod in self._pods.values():
            pod.close()

    def pod(self, name: str) -> Pod | None:
        """That of this name which came last."""
        found = [pod for pod in self._pods.values() if pod.name == name]
        return found[-1] if found else None

    def _work(self) -> None:
        while not self._ends.wait(POLL_S):
            listed = {pod["metadata"]["uid"]: pod for pod in self.api.list("pods")}
            for uid, manifest in listed.items():
                if uid not in self._pods and manifest["status"]["phase"] == "Pending":
                    self._pods[uid] = Pod(self, manifest)
            for uid, pod in self._pods.items():
                manifest = listed.get(uid)
                if manifest is None:
                    pod.delete(0)
                elif "deletionTimestamp" in manifest["metadata"]:
                    pod.delete(manifest["metadata"]["deletionGracePeriodSeconds"])


class Pod:
    """One pod, in a thread of its own. ``containers`` are by name, those of init included."""

    def __init__(self, kubelet: Kubelet, manifest: Object) -> None:
        self._kubelet = kubelet
        self._manifest = manifest
        self.name = str(manifest["metadata"]["name"])
        self.folder = kubelet.folder / f"{self.name}-{manifest['metadata']['uid'][:8]}"
        self.containers: dict[str, Container] = {}
        self._grace_s: float | None = None  # once it is deleted
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Everything that runs in it, at once: as where memory runs out."""
        for container in [*self.containers.values()]:
            container.kill()

    def close(self) -> None:
        """As where it is deleted without a grace; returns when nothing of it is left."""
        self.delete(0)
        self.kill()
        self._thread.join()

    def delete(self, grace_s: float) -> None:
        """Idempotent."""
        if self._grace_s is None:
            self._grace_s = grace_s

    @property
    def log(self) -> str:
        """What its containers have printed."""
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    # ---- its life ----------------------------------------------------------------------------

    def _live(self) -> None:
        spec, api = self._manifest["spec"], self._kubelet.api
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name}}
        api.call("POST", api.path("pods", f"{self.name}/binding"), {**body, "target": target})
        self.folder.mkdir(parents=True)
        volumes = self._volumes()
        self._report("Pending")
        if volumes is None or not all(
            self._run([each], volumes, again="OnFailure") for each in spec.get("initContainers", [])
        ):
            phase = "Failed"
        else:
            done = self._run(spec["containers"], volumes, again=spec["restartPolicy"])
            phase = "Succeeded" if done else "Failed"
        self._report(phase)
        if self._grace_s is not None:
            with contextlib.suppress(ApiError):  # it is gone already
                api.delete("pods", self.name, 0)

    def _run(self, specs: Sequence[Object], volumes: Mapping[str, Path], *, again: str) -> bool:
        """Run containers until none is to be started again, or the pod is deleted; whether all
        ended well.
        """
        restarts = self._manifest["spec"]["restartPolicy"] != "Never"
        mine = [Container(self, spec, volumes) for spec in specs]
        self.containers |= {each.name: each for each in mine}
        for each in mine:
            each.start()
        while True:
            self._report("Running" if again != "OnFailure" or not restarts else "Pending")
            if self._grace_s is not None:
                break
            ended = [each for each in mine if each.status is not None]
            back = [
                each
                for each in ended
                if restarts and (again == "Always" or (each.status and again == "OnFailure"))
            ]
            if len(ended) == len(mine) and not back:
                break
            for each in back:
                each.start()
            time.sleep(POLL_S)
        for each in mine:
            each.end(self._grace_s or 0)
        return all(each.status == 0 for each in mine)

    def _report(self, phase: str) -> None:
        """Tell the API server how it is."""
        init = {each["name"] for each in self._manifest["spec"].get("initContainers", [])}
        each = [container.report() for container in self.containers.values()]
        main = [one for one in each if one["name"] not in init]
        ready = bool(main) and all(one["ready"] for one in main) and phase == "Running"
        status = {
            "phase": phase,
            "podIP": HOST,
            "podIPs": [{"ip": HOST}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "initContainerStatuses": [one for one in each if one["name"] in init],
            "containerStatuses": main,
        }
        api = self._kubelet.api
        with contextlib.suppress(ApiError):  # it was deleted meanwhile
            api.call(
                "PATCH", api.path("pods", f"{self.name}/status"), {"status": status}, content=MERGE
            )

    # ---- what its containers find ------------------------------------------------------------

    def _volumes(self) -> Mapping[str, Path] | None:
        """Folders by the volumes' names; None where the pod was deleted before they were there."""
        found = {}
        for volume in self._manifest["spec"].get("volumes", []):
            folder = self.folder / "volumes" / volume["name"]
            if "persistentVolumeClaim" in volume:
                folder = (
                    self._kubelet.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
                )
            folder.mkdir(parents=True, exist_ok=True)
            found[volume["name"]] = folder
            if "configMap" in volume:
                while (
                    data := self._kubelet.api.get("configmaps", volume["configMap"]["name"])
                ) is None:
                    if self._grace_s is not None:
                        return None
                    time.sleep(POLL_S)
                for name, text in data.get("data", {}).items():
                    (folder / name).write_text(SERVICE.sub(HOST, text))
        return found

    def variable(self, given: Object) -> str:
        """What an environment variable of a container is."""
        if "valueFrom" not in given:
            return str(given.get("value", ""))
        (place,) = given["valueFrom"].values()
        known = {"status.podIP": HOST, "metadata.name": self.name}
        return known[place["fieldPath"]]

    def image(self, name: str) -> Image:
        return self._kubelet.images[name]


class Container:
    """One container: a process tree in a session of its own. ``status`` is what it ended with."""

    def __init__(self, pod: Pod, spec: Object, volumes: Mapping[str, Path]) -> None:
        self.name = str(spec["name"])
        self._pod = pod
        self._spec = spec
        image = pod.image(spec["image"])
        mounts = {m["mountPath"]: volumes[m["name"]] for m in spec.get("volumeMounts", [])}
        self._places = {**image.paths, **mounts}
        ports = [port["containerPort"] for port in spec.get("ports", [])]
        self._ports = dict(zip(ports, free_ports(len(ports)), strict=True))
        words = [*(spec.get("command") or image.entrypoint), *spec.get("args", [])]
        self._command = [self._here(word) for word in words]
        given = {each["name"]: self._here(pod.variable(each)) for each in spec.get("env", [])}
        self._variables = {**os.environ, **image.variables, **given}
        self._process: subprocess.Popen[bytes] | None = None
        self._began = ""
        self._is_ready = not spec.get("readinessProbe")
        self.restarts = -1
        self.status: int | None = None

    def _here(self, text: str) -> str:
        """What is named in the container, by this machine's name."""
        for place, folder in sorted(self._places.items(), key=lambda each: -len(each[0])):
            text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![\w.-])", str(folder), text)
        for port, own in self._ports.items():
            text = re.sub(rf":{port}\b", f":{own}", text)
        return SERVICE.sub(HOST, text)

    def start(self) -> None:
        if self.restarts >= 0:
            time.sleep(BACK_OFF_S)
        self.restarts += 1
        self.status = None
        self._began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with (self._pod.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._variables,
                cwd=self._pod.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Probes while it runs. What is left of it ends with its first process."""
        ready, lives = (self._probe(kind) for kind in ("readinessProbe", "livenessProbe"))
        while process.poll() is None:
            self._is_ready = next(ready)
            if not next(lives):
                stop(process, LIVENESS_GRACE_S)
                self._kill_session()
            time.sleep(POLL_S)
        self._kill_session()
        self._is_ready = False
        self.status = process.returncode if process.returncode >= 0 else 128 - process.returncode

    def _probe(self, kind: str) -> Iterator[bool]:
        """How it stands now, whenever it is asked."""
        probe: Object | None = self._spec.get(kind)
        stands, due_s, failures = kind == "livenessProbe" or probe is None, time.monotonic(), 0
        if probe is not None:
            due_s += probe.get("initialDelaySeconds", 0)
        while True:
            if probe is not None and time.monotonic() >= due_s:
                due_s = time.monotonic() + probe.get("periodSeconds", 10)
                answers = self.get(probe["httpGet"]["path"], probe["httpGet"]["port"]) == 200
                failures = 0 if answers else failures + 1
                stands = answers or (stands and failures < probe.get("failureThreshold", 3))
            yield stands

    def get(self, path: str, port: str | int) -> int:
        """The HTTP status of one of its ports, by name or number; 0 where nothing answers."""
        numbers = {p.get("name"): p["containerPort"] for p in self._spec.get("ports", [])}
        try:
            with urlopen(
                f"http://{HOST}:{self._ports[numbers.get(port, port)]}{path}", timeout=5
            ) as got:
                return int(got.status)
        except URLError as error:
            return int(getattr(error, "code", 0))
        except OSError:
            return 0

    def end(self, grace_s: float) -> None:
        """SIGTERM to its first process, and after the grace SIGKILL to all."""
        process = self._process
        if process is None:
            return
        stop(process, grace_s)
        self.kill()
        while self.status is None:
            time.sleep(POLL_S / 4)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._kill_session()

    def _kill_session(self) -> None:
        assert self._process is not None
        while members(self._process.pid):
            signal_session(self._process.pid, signal.SIGKILL)
            time.sleep(0.01)

    def report(self) -> Object:
        """As the API server has it."""
        running = {"running": {"startedAt": self._began}}
        ended = {"terminated": {"exitCode": self.status, "startedAt": self._began}}
        return {
            "name": self.name,
            "image": self._spec["image"],
            "imageID": "",
            "ready": self.status is None and self._is_ready,
            "restartCount": max(self.restarts, 0),
            "state": running if self.status is None else ended,
        }


def stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM, and time to end."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
