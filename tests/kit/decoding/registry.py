"""A small schema registry: what of its HTTP API a reader needs, in a thread, with the answers of
the real one.
"""

from __future__ import annotations

import base64
import json
import ssl
import uuid
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.kit.serving import Answer, Asked, HttpServer, serving


def guid_of(number: int) -> uuid.UUID:
    """The GUID of a schema of a ``Registry``."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{number}")


class Registry:
    """``register`` makes a schema known under an id. ``status`` other than 200 is answered to
    everything, and ``foreign``, a status and a body, is what something before the registry answers;
    ``behind`` is how many more times a schema that it has is unknown, as to one that follows
    another. ``texts`` gives Protobuf as text, whatever is asked for. ``user``: name and password of
    who may ask."""

    def __init__(self) -> None:
        self.status = 200
        self.foreign: tuple[int, bytes] | None = None
        self.behind = 0
        self.texts = self.has_guids = False
        self.requests: list[str] = []
        self.user: str | None = None
        self._by_id: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._server = HttpServer(self._serve)
        self._serving = ExitStack()
        self._serving.enter_context(serving(self._server))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return self._server.url

    def register(
        self,
        subject: str,
        schema: Any,
        kind: str = "AVRO",
        references: tuple[Any, ...] = (),
        *,
        rules: dict[str, Any] | None = None,
    ) -> int:
        """The new schema's id; ``schema`` is JSON, or the descriptor of a Protobuf file."""
        number = 100 + len(self._by_id)
        if isinstance(schema, FileDescriptorProto):
            kind = "PROTOBUF"
            body = base64.b64encode(schema.SerializeToString()).decode()
        else:
            body = schema if isinstance(schema, str) else json.dumps(schema)
        made = {"schema": body, "references": list(references)}
        if kind != "AVRO":  # which the real one leaves out
            made["schemaType"] = kind
        if rules is not None:
            made["ruleSet"] = rules
        self._by_id[number] = made
        self._subjects.setdefault(subject, []).append(number)
        return number

    def encrypt(self, context: ssl.SSLContext) -> None:
        """From now on it speaks TLS."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        self._serving.close()

    def _answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        self.requests.append(path)
        if self.status != 200:
            return self.status, {"error_code": self.status * 100 + 1, "message": "told to fail"}
        if self.user is not None:
            wanted = "Basic " + base64.b64encode(self.user.encode()).decode()
            if authorization != wanted:
                return 401, {"error_code": 40101, "message": "Unauthorized"}
        parts = urlsplit(path)
        steps = [unquote(one) for one in parts.path.strip("/").split("/")]
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        serialized = query.get("format") == "serialized"
        if steps == ["schemas", "types"]:
            return 200, ["AVRO", "JSON", "PROTOBUF"]
        if steps[:2] == ["schemas", "ids"]:
            return self._schema(int(steps[2]), serialized, {})
        if steps[:2] == ["schemas", "guids"]:
            if not self.has_guids:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
            guid = uuid.UUID(steps[2])
            known = [number for number in self._by_id if guid_of(number) == guid]
            return self._schema((known or [0])[0], serialized, {"guid": str(guid)})
        versions = self._subjects.get(steps[1])
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{steps[1]}' not found."}
        version = len(versions) if steps[3] == "latest" else int(steps[3])
        if not 1 <= version <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = versions[version - 1]
        more = {"subject": steps[1], "version": version, "id": number}
        return self._schema(number, serialized, more)

    def _schema(self, number: int, serialized: bool, more: dict[str, Any]) -> tuple[int, Any]:
        found = self._by_id.get(number)
        if self.behind:
            self.behind, found = self.behind - 1, None
        if found is None:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        if found.get("schemaType") == "PROTOBUF" and (self.texts or not serialized):
            found = {**found, "schema": 'syntax = "proto3";'}
        return 200, {**more, **found}

    def _serve(self, asked: Asked) -> Answer:
        status, body = self._answer(asked.path, asked.headers.get("Authorization"))
        data = json.dumps(body).encode()
        if self.foreign is not None:
            status, data = self.foreign
        return status, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, data
