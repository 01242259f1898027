"""Settings of a client: as the user gives them, in each client's names, checked."""
