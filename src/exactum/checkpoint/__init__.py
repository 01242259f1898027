"""What lies in a checkpoint's folder, Spark's files and exactum's own. Knows no Spark."""
