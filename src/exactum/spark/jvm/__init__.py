"""The one room that reaches into Spark's JVM and its private parts: what begins with ``_j``, the
gateway, classes by their names.

What it calls was looked up in Spark 4.0.1, 4.1 and 4.2; each file names the Scala files it rests
on. A new version of Spark that changes them breaks files here and nowhere else. The rest of spark/
passes on what it is given from here, and asks only by the methods of these classes.
"""
