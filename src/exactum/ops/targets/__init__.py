"""How operators' commands reach the sinks of a query, without Spark: through those that the user
gives. Nothing here prints a secret.
"""
