"""What is open or in doubt in the targets, and how an operator settles it: ``exactum
transactions``.
"""
