package exactum;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads a range of one partition as KafkaBatchPartitionReader does, record by record through Spark's cached consumer,
 * and hands the records out many at a time. A range of a wide micro-batch is read by a MovingConsumer.
 *
 * <p>Nothing is copied and nothing lies outside of the heap: a batch refers to the consumer's keys and values, so there
 * is nothing to free when a task is killed.
 */
final class ColumnarKafkaReader implements PartitionReader<ColumnarBatch> {
    private static final int RECORDS_MAX = 10_000;
    /** Of keys, values and headers; a batch holds one record more than fits. */
    private static final int BYTES_MAX = 2 << 20;

    private final KafkaBatchInputPartition range;
    private final long untilOffset;
    /** Of a task that reads, and null of what reads outside of one. */
    private final TaskContext task = TaskContext.get();

    private long nextOffset;
    private ColumnarBatch batch;
    /** Of the two, one at a time. */
    private MovingConsumer moving;
    private KafkaDataConsumer sparks;

    ColumnarKafkaReader(KafkaBatchInputPartition range) {
        this.range = range;
        nextOffset = range.offsetRange().fromOffset();
        untilOffset = range.offsetRange().untilOffset();
        if (nextOffset < 0 || untilOffset < 0) { // "earliest" and "latest", which only batch reads have
            throw new IllegalStateException("A micro-batch with open offsets: " + range);
        }
        moving = MovingConsumer.take(range);
    }

    @Override
    public boolean next() {
        KafkaRecords records = new KafkaRecords(range.offsetRange().topicPartition(), range.includeHeaders());
        while (nextOffset < untilOffset && records.count() < RECORDS_MAX && records.bytes() < BYTES_MAX) {
            if (task != null) {
                task.killTaskIfInterrupted(); // Spark asks between batches only, and a slow broker takes long for one
            }
            ConsumerRecord<byte[], byte[]> record = record();
            if (record == null) { // what is left was aborted, compacted, or lost where losses are accepted
                nextOffset = untilOffset;
            } else {
                records.add(record);
                nextOffset = record.offset() + 1;
            }
        }
        if (moving != null && nextOffset >= untilOffset) {
            moving.giveBack();
            moving = null;
        }
        batch = records.count() == 0 ? null : records.batch("true".equals(range.executorKafkaParams().get(ColumnarKafka.NULL_TIMES)));
        return batch != null;
    }

    /** The next one; null where there is none any more. */
    private ConsumerRecord<byte[], byte[]> record() {
        if (moving != null) {
            try {
                return moving.next(untilOffset, range.pollTimeoutMs());
            } catch (OffsetOutOfRangeException unsure) {
                close();
            }
        }
        if (sparks == null) {
            sparks = KafkaDataConsumer.acquire(range.offsetRange().topicPartition(), range.executorKafkaParams());
        }
        return sparks.get(nextOffset, untilOffset, range.pollTimeoutMs(), range.failOnDataLoss());
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() {
        if (moving != null) { // in the middle of its range
            moving.close();
            moving = null;
        }
        if (sparks != null) {
            sparks.release();
        }
    }
}
