"""The driver's session, made again when it breaks."""

from __future__ import annotations

import pytest

from exactum.sql import session as retrying_session
from tests.kit.sql.sql_database import SqlDatabase
from tests.sql.test_epochs import query_on


def test_a_machine_that_stood_still_for_longer_than_a_step_is_tried(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over when the first try fails, and the server is there."""
    driver = query_on(database, database.table()).start()
    driver.run(0)
    monkeypatch.setattr(retrying_session, "TIMEOUT_S", 0.0)
    database.end_sessions()
    assert driver.participant.list_open() == []
    driver.close()
