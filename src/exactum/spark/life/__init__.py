"""The life of a script under ``exactum run`` and of a query between start, stop and savepoint."""
