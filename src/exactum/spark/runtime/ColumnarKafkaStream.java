package exactum;

import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;

/**
 * Spark's stream, but for the readers, and for the stop of a bounded source.
 *
 * <p>A class and no java.lang.reflect.Proxy: what Spark's Scala throws without declaring it, the interruption by which a
 * query is stopped among it, a proxy would wrap, and Spark would take the stop for a failure.
 */
final class ColumnarKafkaStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private final KafkaMicroBatchStream stream;
    private final boolean inColumns;
    /** Or null. */
    private final StopOffsets stop;
    /** Or null. */
    private volatile KafkaRanges.Gathered gathered;

    ColumnarKafkaStream(MicroBatchStream stream, boolean inColumns, StopOffsets stop) {
        this.stream = (KafkaMicroBatchStream) stream;
        this.inColumns = inColumns;
        this.stop = stop;
    }

    boolean gather(KafkaRanges.Gathered how) {
        boolean can = inColumns && KafkaRanges.canMove();
        gathered = can ? how : null;
        return can;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        PartitionReaderFactory rows = stream.createReaderFactory();
        return inColumns ? new ColumnarKafka.ColumnarReaderFactory(rows) : rows;
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
        Offset end = stream.latestOffset(start, limit);
        return stop == null || end == null ? end : stop.capped(start, end);
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
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        InputPartition[] ranges = stream.planInputPartitions(start, end);
        return inColumns ? KafkaRanges.planned(ranges, gathered) : ranges;
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
