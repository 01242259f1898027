"""The script's side of ``exactum run``: what it tells its supervisor, and what it is told."""
