"""etcd and kube-apiserver, built from their Go modules into exactum's cache.

    python -m tests.kit.kubernetes.binaries

The first time takes 20 to 60 minutes on two cores, and 3 GB. What is built is kept, and a build that
was ended goes on where it was: Go keeps each package that it has compiled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from exactum.java.jars import cache_folder

KUBERNETES = "1.36.3"
ETCD = "3.6.6"
PROGRAMS = ("etcd", "kube-apiserver")
FOLDER = cache_folder() / "kubernetes"
STAGED = re.compile(r"(\S+) => \./staging/src/\1$", re.MULTILINE)


def program(name: str) -> Path:
    """Where it is once it is built."""
    version = ETCD if name == "etcd" else KUBERNETES
    return FOLDER / f"{name}-{version}"


def main() -> None:
    if shutil.which("go") is None:
        sys.exit("Go 1.26 or later has to be on the PATH: the programs are built from Go modules.")
    missing = [name for name in PROGRAMS if not program(name).exists()]
    if missing:
        print(
            f"downloads Go modules (about 200 MB) and builds {', '.join(missing)} into {FOLDER}, at "
            "the lowest priority: up to an hour. What is compiled is kept if you end it.",
            flush=True,
        )
    for name in missing:
        print(f"{name}: builds", flush=True)
        build_etcd() if name == "etcd" else build_apiserver()
    print(f"ready: {', '.join(str(program(name)) for name in PROGRAMS)}", flush=True)


def build_etcd() -> None:
    """As a dependency of a module of our own: its own go.mod names folders of its repository."""
    folder = FOLDER / "etcd"
    folder.mkdir(parents=True, exist_ok=True)
    module = "go.etcd.io/etcd/server/v3"
    (folder / "go.mod").write_text(f"module etcd\n\ngo 1.24\n\nrequire {module} v{ETCD}\n")
    go("build", "-p", "1", "-o", str(program("etcd")), module, folder=folder)


def build_apiserver() -> None:
    built = str(program("kube-apiserver"))
    go("build", "-p", "1", "-o", built, "./cmd/kube-apiserver", folder=sources())


def sources() -> Path:
    """Kubernetes' module in a folder that may be written, its parts taken by their versions."""
    folder = FOLDER / f"source-{KUBERNETES}"
    if not folder.exists():
        found = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
        made = folder.with_name(f"{folder.name}.made")
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(found["Dir"], made, copy_function=shutil.copyfile)
        for path in (made, *made.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        mod = made / "go.mod"
        staged = f"v0.{KUBERNETES.partition('.')[2]}"
        mod.write_text(STAGED.sub(rf"\1 => \1 {staged}", mod.read_text()))
        made.rename(folder)
    return folder


def go(*arguments: str, folder: Path | None = None) -> str:
    """Run the go command, and return what it prints. What it does is shown."""
    return subprocess.run(
        ["nice", "-n", "19", "go", *arguments],
        cwd=folder or FOLDER,
        env={
            **os.environ,
            "GOFLAGS": "-mod=mod -buildvcs=false",
            "GOWORK": "off",
            "CGO_ENABLED": "0",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    main()
