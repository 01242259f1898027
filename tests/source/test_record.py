"""What a query reads is on record before it is read; where it cannot be, the query says whether
to start it again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from exactum.errors import CheckpointRefused
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.spark.source.record import SourceRecord
from tests.kit.errors import raised
from tests.kit.waiting import WAIT_MAX_S

FULL = """
import resource, sys
from pathlib import Path
from exactum.errors import Unavailable
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.spark.source.record import SourceRecord
record = SourceRecord(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    record.add_topic("orders", TopicSeen("id", 2))
except Unavailable as error:
    sys.exit(0 if sys.argv[1] in str(error) else f"unclear: {error}")
sys.exit("it was taken")
"""


def test_a_disk_that_takes_nothing_may_be_tried_again(tmp_path: Path) -> None:
    """A supervisor starts such a query again; no half file is left."""
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_MAX_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a file, where a folder should be")
    with raised(CheckpointRefused, "CHECKPOINT_ACCESS", tmp_path / "0"):
        SourceRecord(tmp_path / "0").add_topic("orders", TopicSeen("id", 2))
