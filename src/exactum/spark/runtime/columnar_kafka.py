"""The jar of ``ColumnarKafka.java``: Spark's Kafka source, read in columns
(docs/adr/0025-columnar-kafka-source.md), and no further than to a stop.

The jar lies beside its sources, compiled; ``make columnar-jar`` makes it anew.
"""

from __future__ import annotations

from pathlib import Path

from exactum.spark.runtime.carried_jar import carried_jar

FORMAT = "exactum.ColumnarKafka"
"""The class, and so the name for ``spark.readStream.format``."""
SPARK_VERSIONS = ("4.2.",)
"""What versions begin with whose connector has the parts that the classes use, as tests saw it."""
JAR = Path(__file__).with_name("columnar-kafka.jar")
SOURCES = tuple(
    JAR.with_name(f"{name}.java")
    for name in (
        "ColumnarKafka",
        "ColumnarKafkaReader",
        "ColumnarKafkaStream",
        "KafkaHeaders",
        "KafkaRecords",
        "MovingConsumer",
        "PackedBatches",
        "PlainColumn",
        "RecordPacker",
        "StopOffsets",
        "TopicIds",
    )
)


def columnar_kafka_jar() -> Path:
    """The jar that ``spark.jars`` must name for ``read_kafka`` to read in columns, or to a stop.

    Raises:
        LocalServerError: exactum was imported from an archive, and the JVM cannot read the jar in
            it.
    """
    return carried_jar(JAR, "the classes that read Kafka in columns")
