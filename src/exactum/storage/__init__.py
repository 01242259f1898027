"""Files that survive, in a folder or in an object store."""
