"""Values of users as Arrow holds them, in words that never fail: UTF-8, days and instants of any
year, JSON, key texts.

``to_pylist()`` raises for days that Python has no date for and for bytes that are no UTF-8. Nothing
here does.
"""
