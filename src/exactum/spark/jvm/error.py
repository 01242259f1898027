"""What a call into the JVM raises when Spark does not answer, or has no such part."""

from __future__ import annotations

from py4j.protocol import Py4JError

JvmError = Py4JError
