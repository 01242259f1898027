"""What is known of running queries: facts, kept beside the checkpoint and added up to numbers.

It watches and decides nothing. Nothing here is ever a reason for a query to stop.
"""
