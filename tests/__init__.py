"""The tests: a package, so that ``tests.kit`` can be imported by name from everywhere."""
