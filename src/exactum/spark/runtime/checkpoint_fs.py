"""The jar of ``CheckpointFs.java``: Spark writes local checkpoints with it without starting
processes, and fsyncs them.

Hadoop runs ``readlink`` and ``chmod`` some ten times for each file that Spark writes to a
checkpoint, and each epoch writes two files and more: a quarter of a small epoch
(docs/speed.md). And it fsyncs nothing, so that a power cut may take what a recorded decision
rests on (docs/adr/0021-fsync-of-checkpoints.md).

The jar lies beside its source, compiled (docs/adr/0023-compiled-checkpoint-class.md); ``make
checkpoint-jar`` makes it anew.
"""

from __future__ import annotations

from pathlib import Path

from exactum.spark.runtime.carried_jar import carried_jar

CLASS = "exactum.CheckpointFs"
SETTING = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""Which class serves ``file:`` for those who use Hadoop's FileContext. Of what Spark does, that
is its checkpoints.
"""
SOURCE = Path(__file__).with_name("CheckpointFs.java")
JAR = Path(__file__).with_name("checkpoint-fs.jar")


def checkpoint_jar() -> Path:
    """The jar that ``spark.jars`` must name for Spark to write checkpoints with this class.

    Raises:
        LocalServerError: exactum was imported from an archive, and the JVM cannot read the jar in
            it.
    """
    return carried_jar(JAR, "the class that fsyncs checkpoints")
