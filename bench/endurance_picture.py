"""The samples of a long run as a picture: python -m bench.endurance_picture SAMPLES.jsonl
PICTURE.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

DPI = 192
"""Twice what a browser takes for a pixel."""
PANELS: Mapping[str, Mapping[str, str]] = {
    "resident memory, MiB": {
        "jvm_mib": "JVM",
        "driver_mib": "driver's Python",
        "workers_mib": "Python workers",
    },
    "open files": {"open_files": "all processes of the query"},
    "transactional ids": {"transactional_ids": "known to the broker"},
    "files": {
        "decision_records": "decision records",
        "checkpoint_files": "all files in the checkpoint",
    },
    "records behind": {"lag": "group's offsets behind the last epoch"},
}


def draw(samples: Sequence[Mapping[str, float]], path: Path) -> None:
    """One panel for each thing that could grow, over the epochs."""
    figure, axes = plt.subplots(len(PANELS), 1, sharex=True, figsize=(8, 10), layout="constrained")
    epochs = [sample["epoch"] for sample in samples]
    for panel, (title, lines) in zip(axes, PANELS.items(), strict=True):
        for name, label in lines.items():
            panel.plot(epochs, [sample[name] for sample in samples], label=label, linewidth=1)
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_ylim(bottom=0)
        panel.grid(visible=True, alpha=0.3)
        panel.legend(loc="lower right", fontsize=8)
    axes[-1].set_xlabel("epoch")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)


if __name__ == "__main__":
    draw(
        [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()], Path(sys.argv[2])
    )
