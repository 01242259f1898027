"""``exactum doctor``: looks at everything that a query will need, before its first start. What a
check makes it removes, and it changes nothing else.
"""
