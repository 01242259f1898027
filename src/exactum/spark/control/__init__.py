"""Rules that change while a query runs: read, recorded, and sent along with every task."""
