"""What the tests of Iceberg tables share: a catalog of their own, and pyiceberg as a reader and as
somebody else who writes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from exactum.lake.iceberg import IcebergSink
from tests.kit.waiting import WAIT_MAX_S

TABLE = "shop.orders"


class Lake:
    """A warehouse in a folder, and the catalog that knows its tables. ``Delta`` is the same for Delta."""

    name = "iceberg"
    commits = (Table, "_do_commit")

    def __init__(self, folder: Path, **catalog: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        # A machine that stands still must not tell others that the file is locked.
        uri = f"sqlite:///{folder / 'catalog.db'}?timeout={WAIT_MAX_S}"
        self.settings: Mapping[str, str] = {
            "name": "lake",
            "warehouse": f"file://{folder}",
            **(catalog or {"type": "sql", "uri": uri}),
        }
        self.catalog: Catalog = load_catalog(**self.settings)

    def sink(self, **more: Any) -> IcebergSink:
        return IcebergSink(TABLE, catalog=self.settings, **more)

    def create(self, schema: pa.Schema, **properties: str) -> Table:
        self.catalog.create_namespace_if_not_exists("shop")
        return self.catalog.create_table(TABLE, schema, properties=properties)

    @property
    def table(self) -> Table:
        """As it is now."""
        return self.catalog.load_table(TABLE)

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.folder / "shop" / "orders" / "data"

    def read(self, branch: str = "main", **more: Any) -> pa.Table:
        """Its rows, as pyiceberg scans them."""
        scan = self.table.scan(**more)
        return (scan if branch == "main" else scan.use_ref(branch)).to_arrow()

    def ids(self, branch: str = "main") -> list[int]:
        return sorted(self.read(branch)["id"].to_pylist())

    def exists(self) -> bool:
        return bool(self.catalog.table_exists(TABLE))

    def versions(self) -> int:
        return len(self.table.snapshots())

    def tidied(self) -> None:
        """Compacted, expired, and orphans are removed."""
        self.table.overwrite(self.read())
        table = self.table
        old = [s.snapshot_id for s in table.snapshots() if s != table.current_snapshot()]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        for file in self.data.glob("part-*.parquet"):
            file.unlink()

    def made_anew(self, schema: pa.Schema) -> None:
        self.catalog.drop_table(TABLE)
        self.create(schema)

    def away(self) -> Callable[[], object]:
        """Out of the catalog; gives what brings it back."""
        location = self.table.metadata_location
        self.catalog.drop_table(TABLE)
        return lambda: self.catalog.register_table(TABLE, location)

    def close(self) -> None:
        self.catalog.close()

    def staged(self) -> list[Path]:
        return sorted(self.folder.glob("shop/orders/.exactum/*/*.staged"))

    def foreign(self, *ids: int) -> None:
        """Somebody else appends rows of one column."""
        self.table.append(pa.table({"id": pa.array(ids, pa.int64())}))

    def branch(self, name: str) -> None:
        """From where main is."""
        at = self.table.current_snapshot()
        assert at is not None
        self.table.manage_snapshots().create_branch(at.snapshot_id, name).commit()

    def rewritten(self, **changes: Any) -> None:
        """The same table, with metadata that any writer of Iceberg could have made: as of its JSON
        document.
        """
        self.amended(lambda document: document.update(changes))

    def amended(self, change: Any) -> None:
        at = Path(self.table.metadata_location.removeprefix("file://"))
        document = json.loads(at.read_text())
        change(document)
        new = at.with_name(f"99999-{uuid.uuid4()}.metadata.json")
        new.write_text(json.dumps(document))
        self.catalog.drop_table(TABLE)
        self.catalog.register_table(TABLE, f"file://{new}")
