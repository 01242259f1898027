"""A sink of PostgreSQL, checked and opened without anything written."""

from __future__ import annotations

import itertools
from typing import Any

from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.sql.postgres.sink import PostgresSink
from exactum.storage.folder import Folder
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, Columns, new_staging

_starts = itertools.count(1)


def start(database: Database, table: str, columns: Columns = ID_AND_NAME, **settings: Any) -> None:
    """Check and open, as a starting query does."""
    sink = PostgresSink(settings.pop("url", database.url), table=table, **settings)
    staging = Folder(str(new_staging()))
    run = QueryRun(f"refused-{next(_starts)}", new_incarnation(), Guarantee.EXACTLY_ONCE, staging)
    sink.open(run, sink.name, columns).participant.close()
