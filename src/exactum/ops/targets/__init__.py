"""How operators' commands reach the sinks of a query, without Spark: what the checkpoint has on
file of them, what the user adds, and sink objects made of both. Nothing here prints a secret.
"""
