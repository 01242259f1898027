"""Settings that concern how a client logs in, by the names that Java's and librdkafka's share."""

from __future__ import annotations

from collections.abc import Mapping

SECURITY_PREFIXES = ("security.", "sasl.", "ssl.")


def security_settings(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Of a client's settings those by which it logs in, secrets among them: sorted pairs."""
    return tuple(sorted((n, v) for n, v in settings.items() if n.startswith(SECURITY_PREFIXES)))
