"""Certificates that sign themselves, for a server at 127.0.0.1."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kit.servers.postgres import LocalPostgres


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """(certificate, key): new files in ``folder``."""
    certificate, key = folder / "server.crt", folder / "server.key"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=exactum -addext "
        "subjectAltName=IP:127.0.0.1,DNS:localhost"
    )
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    key.chmod(0o600)
    return certificate, key


def serve_tls(server: LocalPostgres) -> Path:
    """The server, running, offers TLS from now on. Returns its certificate."""
    certificate, key = make_certificate(server.folder)
    owner = server.folder.stat()
    os.chown(key, owner.st_uid, owner.st_gid)
    server.configure({"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)})
    server.restart()
    return certificate
