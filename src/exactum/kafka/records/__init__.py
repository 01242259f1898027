"""What one record is to librdkafka and to a broker: its fields, its headers, its size."""
