"""A REST catalog of Iceberg's over a SQL catalog of pyiceberg's: as much of it as a client needs
that makes tables and commits to them. Its answers can be lost.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyiceberg import exceptions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import SortOrder

from tests.kit.serving import Asked, HttpServer, serving
from tests.kit.waiting import WAIT_MAX_S

Answer = tuple[int, Any]
NAMESPACE = re.compile(r"/v1/namespaces/(?P<space>[^/]+)")
TABLES = re.compile(NAMESPACE.pattern + "/tables")
TABLE = re.compile(TABLES.pattern + "/(?P<table>[^/?]+)")
STATUS = {
    exceptions.NoSuchTableError: 404,
    exceptions.NoSuchNamespaceError: 404,
    exceptions.CommitFailedException: 409,
    exceptions.TableAlreadyExistsError: 409,
    exceptions.NamespaceAlreadyExistsError: 409,
}


class RestCatalog:
    """``lose``: how many answers of commits are lost from now on, and whether before or after
    their effect. ``commits`` counts those that had one.
    """

    def __init__(self, warehouse: Path) -> None:
        uri = f"sqlite:///{warehouse / 'rest.db'}?timeout={WAIT_MAX_S}"
        self.catalog = SqlCatalog("rest", uri=uri, warehouse=f"file://{warehouse}")
        self.uri = ""
        self.lose: list[str] = []
        self.commits = 0
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        if path.startswith("/v1/config"):
            return 200, {"defaults": {}, "overrides": {}}
        if method == "POST" and path == "/v1/namespaces":
            self.catalog.create_namespace(tuple(body["namespace"]))
            return 200, {"namespace": body["namespace"], "properties": {}}
        found = TABLE.fullmatch(path)
        if found is not None:
            name = (found["space"], found["table"])
            return self._commit(name, body) if method == "POST" else self._loaded(name)
        found = TABLES.fullmatch(path)
        if found is not None and method == "POST":
            return self._create((found["space"], body["name"]), body)
        found = NAMESPACE.fullmatch(path)
        if found is not None:
            self.catalog.load_namespace_properties(found["space"])
            return 200, {"namespace": [found["space"]], "properties": {}}
        return 404, {"error": {"message": path, "type": "NoSuchEndpoint", "code": 404}}

    def _loaded(self, name: tuple[str, str]) -> Answer:
        return 200, _described(self.catalog.load_table(name))

    def _create(self, name: tuple[str, str], body: Mapping[str, Any]) -> Answer:
        spec, order = body.get("partition-spec"), body.get("write-order")
        make: Callable[..., Any] = (
            self.catalog._create_staged_table
            if body.get("stage-create")
            else self.catalog.create_table
        )
        made = make(
            name,
            Schema.model_validate(body["schema"]),
            partition_spec=PartitionSpec.model_validate(spec) if spec else PartitionSpec(),
            sort_order=SortOrder.model_validate(order) if order else SortOrder(order_id=0),
            properties=body.get("properties") or {},
        )
        return 200, _described(made)

    def _commit(self, name: tuple[str, str], body: Mapping[str, Any]) -> Answer:
        identifier = {"namespace": [name[0]], "name": name[1]}
        asked = CommitTableRequest.model_validate({**body, "identifier": identifier})
        with self._lock:
            lost = self.lose.pop(0) if self.lose else ""
        if lost == "before":
            return 500, _error("InternalServerError", "the answer was lost", 500)
        table: Any = SimpleNamespace(name=lambda: name)
        done = self.catalog.commit_table(table, asked.requirements, asked.updates)
        with self._lock:
            self.commits += 1
        if lost:
            # What a gateway makes of a lost answer: it asks again, and the second one fails.
            return (409 if lost == "again" else 504), _error("GatewayTimeout", "lost", 504)
        return 200, json.loads(done.model_dump_json(by_alias=True))


def _described(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
        "config": {},
    }


def _error(kind: str, text: str, status: int) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "code": status}}


@contextmanager
def rest_catalog(warehouse: Path) -> Iterator[RestCatalog]:
    warehouse.mkdir(exist_ok=True)
    catalog = RestCatalog(warehouse)

    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        try:
            status, document = catalog.answer(
                asked.method, asked.path.partition("?")[0], json.loads(asked.body or b"{}")
            )
        except tuple(STATUS) as error:
            status = STATUS[type(error)]
            document = _error(type(error).__name__, str(error), status)
        return status, {"Content-Type": "application/json"}, json.dumps(document).encode()

    server = HttpServer(answer)
    catalog.uri = server.url
    with closing(catalog.catalog), serving(server):
        yield catalog
