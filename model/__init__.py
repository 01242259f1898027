"""The decision protocol, checked by machine: a TLA+ model of it, and the real coordinator under
random schedules.
"""
