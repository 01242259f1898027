"""What became of transactions, read back from their coordinator and their partitions."""
