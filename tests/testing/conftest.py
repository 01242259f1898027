"""The broken protocols lie in the package ``model`` beside this folder's parent."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
