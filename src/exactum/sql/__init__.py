"""SQL databases as targets and as decision logs: one layer over the seam ``dialect``."""
