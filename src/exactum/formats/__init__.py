"""Formats of records: bytes to rows, with a reason for each record that is bad. Of Spark it knows
the types only.
"""
