"""Servers that only the project's own tests, benchmarks and fault matrix start: databases, and Kafka clusters of several nodes or with users."""
