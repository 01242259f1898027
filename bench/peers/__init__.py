"""`make bench-peers`: exactum beside what people would use instead, on the same topics and in one
alternating run.
"""
