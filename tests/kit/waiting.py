"""How long the tests wait."""

WAIT_MAX_S = 400.0
"""Longest that a test waits for what must come. Nothing takes a tenth of it on a quiet machine; one
that others share has stood still for two minutes.
"""
