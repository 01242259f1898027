"""Kill and compare: a user's own script, killed at random moments and started again.

Nothing is imported here: pytest loads this package wherever exactum is installed.
"""
