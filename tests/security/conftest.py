"""The helpers of the Kafka sink's tests are imported by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kafka"))
