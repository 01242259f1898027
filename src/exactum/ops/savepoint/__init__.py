"""Savepoints: a user-ordered, verified copy of a query's checkpoint at one complete epoch, and
starting from it.
"""
