"""What all sinks share whose rows wait as files until their epoch is decided."""
