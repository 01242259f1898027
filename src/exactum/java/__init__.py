"""Java on this machine: its programs, jars by Ivy, archives of classes. Spark's driver and local
Kafka brokers start with these.
"""
