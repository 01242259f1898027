"""Java's classes by their full names.

``jvm.org.apache...`` asks the JVM at each dot whether that much is a class (py4j's JVMView and
JavaPackage), and it looks into every jar of the class path before it says no: 1 to 4 ms of a core
for each name, where a class that is named whole is looked up once, in 0.3 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, get_java_class

from exactum.spark.jvm.error import JvmError

if TYPE_CHECKING:  # a supervisor knows queries, and has no pyspark to import
    from pyspark.sql import SparkSession


def java_class(session: SparkSession, name: str) -> Any:
    """The class of this full name (``java.util.UUID``; of an object of Scala's, with a ``$``), to
    call its static methods and to make instances of. The JVM looks for it when it is used first.
    """
    plain: Any = session
    return JavaClass(name, plain.sparkContext._gateway._gateway_client)


def is_there(kind: Any) -> bool:
    """Whether this JVM has such a class."""
    try:
        get_java_class(kind)
    except JvmError:
        return False
    return True


def first_there(session: SparkSession, *names: str) -> Any | None:
    """The first of these classes that this JVM has; None where it has none of them."""
    return next((kind for name in names if is_there(kind := java_class(session, name))), None)
