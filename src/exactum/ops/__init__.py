"""What operators run: the command line, the supervisor, savepoints, the demo."""
