"""A short query whose JVM leaves the archive of its classes, for every later session on this
machine.
"""

from exactum.ops.training.make import make_class_archive

__all__ = ["make_class_archive"]
