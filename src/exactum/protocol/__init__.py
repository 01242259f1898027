"""The decision protocol: pure, with two ports (participant, decision log). See ``coordinator``."""
