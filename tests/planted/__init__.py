"""Planted faults: each breaks one promise on purpose, and ``make test`` has to find it.

``faults`` has them as data; ``python -m tests.planted`` plants each in a copy of the sources, runs
the tests that can see it, and prints which were found. ``make mutants`` calls it.
"""
