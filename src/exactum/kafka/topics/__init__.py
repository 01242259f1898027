"""What a topic is and takes, and a small one read whole."""
