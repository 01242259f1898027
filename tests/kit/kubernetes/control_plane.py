"""A Kubernetes control plane on free ports of this machine: etcd, the API server, and as much of the
controllers as makes a StatefulSet's pod. There is no scheduler and no node: ``kubelet`` takes every
pod.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.kit.kubernetes.binaries import program
from tests.kit.process_tree import ProcessTree
from tests.kit.waiting import WAIT_MAX_S

HOST = "127.0.0.1"
TOKEN = "local"
MERGE = "application/merge-patch+json"
POLL_S = 0.2


class ApiError(Exception):
    """``status`` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """Kubernetes' HTTP API, of the namespace ``default``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # the server has made its own

    def call(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> Any:
        """
        Raises:
            ApiError: what the server refuses.
        """
        request = Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": content},
            method=method,
        )
        try:
            with urlopen(request, context=self._context, timeout=WAIT_MAX_S) as answer:
                text = answer.read().decode()
        except HTTPError as error:
            raise ApiError(error.code, error.read().decode()) from None
        return json.loads(text) if text.startswith("{") else text

    def path(self, kind: str, name: str = "", group: str = "") -> str:
        """``kind`` in lower case and the plural, ``group`` as ``apps/v1``."""
        begin = f"/apis/{group}" if group else "/api/v1"
        return f"{begin}/namespaces/default/{kind}" + (f"/{name}" if name else "")

    def list(self, kind: str, group: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", self.path(kind, group=group))["items"]
        return found

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.call("GET", self.path(kind, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def create(self, manifest: Mapping[str, Any]) -> None:
        """A field that the server does not know is refused."""
        version = manifest["apiVersion"]
        kind = f"{manifest['kind'].lower()}s"
        path = self.path(kind, group=version if "/" in version else "")
        self.call("POST", f"{path}?fieldValidation=Strict", manifest)

    def delete(self, kind: str, name: str, grace_s: int | None = None) -> None:
        """``grace_s`` None: what the object itself says."""
        body = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.call("DELETE", self.path(kind, name), body)


class ControlPlane:
    """Entered, it answers at ``api``. Everything lies in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closing = ExitStack()
        self.api = Api("")

    def __enter__(self) -> ControlPlane:
        self._folder.mkdir(parents=True)
        try:
            self._start()
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _start(self) -> None:
        client, peer, secure = free_ports(3)
        etcd = f"http://{HOST}:{client}"
        self._program(
            "etcd",
            *("--data-dir", "etcd-data", "--unsafe-no-fsync"),
            *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", f"http://{HOST}:{peer}"),
            *("--initial-advertise-peer-urls", f"http://{HOST}:{peer}"),
            *("--initial-cluster", f"default=http://{HOST}:{peer}"),
        )
        self._keys()
        server = self._program(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--cert-dir=certificates",
            f"--secure-port={secure}",
            f"--bind-address={HOST}",
            "--service-account-issuer=https://localhost",
            "--service-account-key-file=account.pub",
            "--service-account-signing-key-file=account.key",
            "--authorization-mode=AlwaysAllow",
            "--token-auth-file=tokens.csv",
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        self.api = Api(f"https://{HOST}:{secure}")
        server.until(self._is_ready, "the API server is ready")
        self._closing.enter_context(StatefulSets(self.api))

    def _is_ready(self) -> bool:
        try:
            return str(self.api.call("GET", "/readyz")) == "ok"
        except (ApiError, URLError, OSError):
            return False

    def _program(self, name: str, *arguments: str) -> ProcessTree:
        log = self._folder / f"{name}.log"
        process = ProcessTree([program(name), *arguments], log, self._folder, os.environ)
        self._closing.callback(process.kill)
        return process

    def _keys(self) -> None:
        (self._folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        for command in (
            ("genrsa", "-out", "account.key", "2048"),
            ("rsa", "-in", "account.key", "-pubout", "-out", "account.pub"),
        ):
            subprocess.run(["openssl", *command], cwd=self._folder, check=True, capture_output=True)


class StatefulSets:
    """The part of Kubernetes' controller that this needs: each set of one replica has its pod. Another
    is made once that one is gone.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="statefulsets", daemon=True)

    def __enter__(self) -> StatefulSets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ends.wait(POLL_S):
            for each in self._api.list("statefulsets", "apps/v1"):
                if each["spec"]["replicas"] == 1:
                    self._keep(each["metadata"]["name"], each["spec"])

    def _keep(self, name: str, spec: Mapping[str, Any]) -> None:
        pod = f"{name}-0"
        if self._api.get("pods", pod) is not None:
            return
        template = spec["template"]
        claims = [
            {
                "name": each["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{pod}"},
            }
            for each in spec.get("volumeClaimTemplates", [])
        ]
        volumes = [*template["spec"].get("volumes", []), *claims]
        self._api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": pod, "labels": template["metadata"]["labels"]},
                "spec": {**template["spec"], "volumes": volumes},
            }
        )


def free_ports(count: int) -> Sequence[int]:
    """All different."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
