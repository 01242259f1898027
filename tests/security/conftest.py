"""The helpers of this folder, and of the Kafka sink's and the source's tests, are imported by
name.
"""

import sys
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parents[1] / folder) for folder in ("security", "kafka", "source")
]
