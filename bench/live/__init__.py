"""``arrow_kafka`` beside ``read_kafka`` (docs/adr/0026)."""
