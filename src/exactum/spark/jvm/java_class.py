"""Java as Python sees it: classes by their full names, Scala's sequences, and whether the JVM
answers.

``jvm.org.apache...`` asks the JVM at each dot whether that much is a class (py4j's JVMView and
JavaPackage), and it looks into every jar of the class path before it says no: 1 to 4 ms of a core
for each name, where a class that is named whole is looked up once, in 0.3 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, get_java_class
from py4j.protocol import Py4JError
from pyspark import SparkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JvmError = Py4JError
_THROWN = "\n: "
"""Before what was thrown, in the text of an error that Java raised; its trace is below that."""


def reason_of(error: Exception) -> str:
    """What was thrown, in one line, without the trace."""
    text = str(error)
    return next(iter(text.rpartition(_THROWN)[2].splitlines()), type(error).__name__)


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


def listed(sequence: Any) -> list[Any]:
    """A Scala Seq as a list; a call for each element."""
    return [sequence.apply(place) for place in range(sequence.size())]


def class_name(node: Any) -> str:
    """The simple name of a JVM object's class, as that of a plan's node."""
    return str(node.getClass().getSimpleName())


def nodes_of(plan: Any) -> Iterator[Any]:
    """A plan's nodes, parents first."""
    yield plan
    for child in listed(plan.children()):
        yield from nodes_of(child)


def ping() -> None:
    """Return once the JVM of the session that is active has answered; at once without one.

    Raises:
        JvmError: it does not.
    """
    context: Any = SparkContext._active_spark_context
    if context is not None:
        JavaClass("java.lang.System", context._gateway._gateway_client).nanoTime()


def has_started() -> bool:
    """Whether there is one, of this process or one that Spark was told to use."""
    return SparkContext._gateway is not None


def has_context() -> bool:
    """Whether Spark runs in this process: its jars and what its JVM was started with stay."""
    return has_started() and SparkContext._active_spark_context is not None
