"""What the tests share: queries that are run and killed, targets and their plain readers, oracles,
servers. A room for each folder of tests, and ``environment`` and ``small_disk`` for all. Nothing
here is collected.
"""
