"""Planted faults: each breaks one promise on purpose, and ``make test`` has to find it.

``faults`` has them as data; ``play`` plants each in a copy of the sources, and runs the tests that can
see it. ``make mutants`` calls it.
"""
