"""The helper modules of this folder, and the oracle of the crash tests, are imported by name."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "crash")]
