"""Consumers that live on in the workers, against the columnar source (docs/adr/0026)."""
