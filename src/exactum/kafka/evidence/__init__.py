"""What the logs of a Kafka sink hold of a range of epochs, read batch by batch."""
