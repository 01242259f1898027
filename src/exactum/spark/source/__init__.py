"""Where a query reads: start and stop, who watches the topics, and what others see of its
offsets.
"""
