"""How a micro-batch's duration grows with partitions and tasks, what of it is the driver's, and how
many transactions a second a broker ends.
"""
