"""``exactum status``: how queries are, by their checkpoints alone, whether their drivers live or
not.
"""
