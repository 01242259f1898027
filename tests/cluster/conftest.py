"""The helper modules of this folder are imported by name; the oracle is the one of the crash
tests.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "crash")]
