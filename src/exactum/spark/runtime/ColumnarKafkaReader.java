package exactum;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads a range of one partition as KafkaBatchPartitionReader does, record by record through Spark's cached consumer,
 * and hands the records out many at a time; or several ranges by a MovingConsumer.
 *
 * <p>Nothing is copied and nothing lies outside of the heap: a batch refers to the consumer's keys and values, so there
 * is nothing to free when a task is killed.
 */
final class ColumnarKafkaReader implements PartitionReader<ColumnarBatch> {
    private static final int RECORDS_MAX = 10_000;
    /** Of keys, values and headers; what is read at once has one record more than fits, or one poll. */
    private static final int BYTES_MAX = 2 << 20;

    /** Of a task that reads, and null of what reads outside of one. */
    private final TaskContext task = TaskContext.get();
    /** What Spark's consumer has to read: a range, or the rest of it. */
    private final Deque<KafkaBatchInputPartition> left = new ArrayDeque<>();
    private final KafkaRanges ranges;
    private final Deque<KafkaRecords> ready = new ArrayDeque<>();

    private ColumnarBatch batch;
    /** Of the two, one at a time. */
    private MovingConsumer moving;
    private KafkaDataConsumer sparks;

    ColumnarKafkaReader(KafkaRanges ranges) {
        this.ranges = ranges;
        for (KafkaBatchInputPartition range : ranges.ranges) {
            if (range.offsetRange().fromOffset() < 0 || range.offsetRange().untilOffset() < 0) {
                // "earliest" and "latest", which only batch reads have
                throw new IllegalStateException("A micro-batch with open offsets: " + range);
            }
        }
        if (ranges.areMoving) {
            moving = MovingConsumer.take(ranges);
        } else {
            left.addAll(Arrays.asList(ranges.ranges));
        }
    }

    @Override
    public boolean next() {
        while (ready.isEmpty() && (moving != null || !left.isEmpty())) {
            if (moving != null) {
                readMoving();
            } else {
                readSparks();
            }
        }
        boolean nullTimes = "true".equals(ranges.ranges[0].executorKafkaParams().get(ColumnarKafka.NULL_TIMES));
        batch = ready.isEmpty() ? null : ready.removeFirst().batch(nullTimes);
        return batch != null;
    }

    private void readMoving() {
        Map<TopicPartition, KafkaRecords> records = new LinkedHashMap<>();
        for (KafkaBatchInputPartition range : ranges.ranges) {
            if (moving.left(range.offsetRange().topicPartition()) != null) {
                records.put(range.offsetRange().topicPartition(), noneYet(range));
            }
        }
        try {
            while (!moving.isDone() && isRoom(records.values())) {
                askSpark();
                moving.poll(ranges.ranges[0].pollTimeoutMs(), records);
            }
        } catch (OffsetOutOfRangeException unsure) {
            for (KafkaBatchInputPartition range : ranges.ranges) {
                Long from = moving.left(range.offsetRange().topicPartition());
                if (from != null) {
                    left.add(from(range, from));
                }
            }
            close();
        }
        if (moving != null && moving.isDone()) {
            moving.giveBack();
            moving = null;
        }
        records.values().stream().filter(each -> each.count() > 0).forEach(ready::add);
    }

    private void readSparks() {
        KafkaBatchInputPartition range = left.removeFirst();
        KafkaRecords records = noneYet(range);
        long next = range.offsetRange().fromOffset(), until = range.offsetRange().untilOffset();
        while (next < until && records.count() < RECORDS_MAX && records.bytes() < BYTES_MAX) {
            askSpark();
            if (sparks == null) {
                sparks = KafkaDataConsumer.acquire(range.offsetRange().topicPartition(), range.executorKafkaParams());
            }
            ConsumerRecord<byte[], byte[]> record = sparks.get(next, until, range.pollTimeoutMs(), range.failOnDataLoss());
            if (record == null) { // what is left was aborted, compacted, or lost where losses are accepted
                next = until;
            } else {
                records.add(record);
                next = record.offset() + 1;
            }
        }
        if (next < until) {
            left.addFirst(from(range, next));
        } else {
            close();
        }
        if (records.count() > 0) {
            ready.add(records);
        }
    }

    private static boolean isRoom(Collection<KafkaRecords> records) {
        long count = 0, bytes = 0;
        for (KafkaRecords each : records) {
            count += each.count();
            bytes += each.bytes();
        }
        return count < RECORDS_MAX && bytes < BYTES_MAX;
    }

    private static KafkaRecords noneYet(KafkaBatchInputPartition range) {
        return new KafkaRecords(range.offsetRange().topicPartition(), range.includeHeaders());
    }

    private static KafkaBatchInputPartition from(KafkaBatchInputPartition range, long offset) {
        KafkaOffsetRange all = range.offsetRange();
        KafkaOffsetRange rest = new KafkaOffsetRange(all.topicPartition(), offset, all.untilOffset(), all.preferredLoc());
        return range.copy(
                rest, range.executorKafkaParams(), range.pollTimeoutMs(), range.failOnDataLoss(), range.includeHeaders());
    }

    /** Spark asks between batches only, and a slow broker takes long for one. */
    private void askSpark() {
        if (task != null) {
            task.killTaskIfInterrupted();
        }
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() {
        if (moving != null) { // in the middle of its ranges
            moving.close();
            moving = null;
        }
        if (sparks != null) {
            sparks.release();
            sparks = null;
        }
    }
}
