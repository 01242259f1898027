package exactum;

import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;

/**
 * Spark's stream, but for the readers.
 *
 * <p>A class and no java.lang.reflect.Proxy: what Spark's Scala throws without declaring it, the interruption by which a
 * query is stopped among it, a proxy would wrap, and Spark would take the stop for a failure.
 */
final class ColumnarKafkaStream
        implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode, ReportsSourceMetrics {
    private final KafkaMicroBatchStream stream;
    private volatile boolean inRealTime = false;

    ColumnarKafkaStream(MicroBatchStream stream) {
        this.stream = (KafkaMicroBatchStream) stream;
    }

    boolean inRealTime() {
        return inRealTime;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        PartitionReaderFactory rows = stream.createReaderFactory();
        return inRealTime ? rows : new ColumnarKafka.ColumnarReaderFactory(rows);
    }

    @Override
    public void prepareForRealTimeMode() {
        inRealTime = true;
        stream.prepareForRealTimeMode();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        stream.prepareForTriggerAvailableNow();
    }

    @Override
    public Offset initialOffset() {
        return stream.initialOffset();
    }

    @Override
    public Offset latestOffset() {
        return stream.latestOffset();
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        return stream.latestOffset(start, limit);
    }

    @Override
    public Offset reportLatestOffset() {
        return stream.reportLatestOffset();
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return stream.getDefaultReadLimit();
    }

    @Override
    public Offset deserializeOffset(String json) {
        return stream.deserializeOffset(json);
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] offsets) {
        return stream.mergeOffsets(offsets);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return stream.planInputPartitions(start, end);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
        return stream.planInputPartitions(start);
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        return stream.metrics(latestConsumed);
    }

    @Override
    public void commit(Offset end) {
        stream.commit(end);
    }

    @Override
    public void stop() {
        stream.stop();
    }

    @Override
    public String toString() {
        return stream.toString();
    }
}
