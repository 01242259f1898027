"""A savepoint: the files of a checkpoint that one epoch rests on, copied, verified, restored."""
