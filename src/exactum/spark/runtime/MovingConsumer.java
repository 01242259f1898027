package exactum;

import java.time.Duration;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;

/**
 * A consumer that reads the ranges of one task after the other's, those of a task at the same time.
 *
 * <p>Spark has a consumer for each partition, and asks each for its log's two ends in every micro-batch. Those that it does
 * not keep are made anew, and to make one costs more than to read a few records. Of these there are as many as tasks read at
 * once, and one request reads what all partitions of a broker have.
 *
 * <p>It hands out what is there for sure. Of anything else Spark's own consumer has to say what it is, and what
 * failOnDataLoss makes of it.
 */
final class MovingConsumer {
    /** What a consumer fetches, of a partition and of a broker; what lies behind a range it fetches in vain. */
    private static final Map<String, Integer> FETCH_MAX =
            Map.of("max.partition.fetch.bytes", 256 << 10, "fetch.max.bytes", 8 << 20);

    private static final long POLL_MS_MAX = 10_000, IDLE_MS_MAX = 60_000;

    /** Of this executor; they are closed when nobody has needed them for a while. */
    private static final class Idle {
        static final Deque<MovingConsumer> ALL = new ConcurrentLinkedDeque<>();

        static {
            new Timer("exactum-idle-consumers", true).schedule(new TimerTask() {
                @Override
                public void run() {
                    for (MovingConsumer each : ALL) {
                        if (System.currentTimeMillis() - each.idleSinceMs > IDLE_MS_MAX && ALL.remove(each)) {
                            each.closeQuietly();
                        }
                    }
                }
            }, IDLE_MS_MAX, IDLE_MS_MAX);
        }
    }

    /** Those of Spark's consumers. */
    private final Map<String, Object> settings;

    private final KafkaConsumer<byte[], byte[]> consumer;
    /** Where it stands in each partition that it is assigned: the first offset that it has not handed out or dropped. */
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    /** The partitions whose ranges are not read to their end, with the first offset behind that. */
    private final Map<TopicPartition, Long> ends = new HashMap<>();

    private volatile long idleSinceMs;

    private MovingConsumer(Map<String, Object> settings) {
        this.settings = settings;
        Map<String, Object> own = new HashMap<>(settings);
        FETCH_MAX.forEach((name, most) ->
                own.merge(name, most, (given, all) -> Math.min(Integer.parseInt(given.toString()), most)));
        consumer = new KafkaConsumer<>(own);
    }

    /** One that stands at the begin of all ranges, for their reader alone. */
    static MovingConsumer take(KafkaRanges task) {
        Map<String, Object> settings = task.ranges[0].executorKafkaParams();
        Set<TopicPartition> partitions = new HashSet<>();
        for (KafkaBatchInputPartition range : task.ranges) {
            partitions.add(range.offsetRange().topicPartition());
        }
        MovingConsumer found = idle(settings, partitions);
        if (found == null) {
            found = idle(settings, Set.of());
        }
        if (found == null) {
            found = new MovingConsumer(settings);
        }
        try {
            found.assign(partitions, task.ranges);
        } catch (RuntimeException refused) {
            found.closeQuietly();
            throw refused;
        }
        return found;
    }

    /** One that has read these partitions before, if there is one that no other task takes meanwhile. */
    private static MovingConsumer idle(Map<String, Object> settings, Set<TopicPartition> partitions) {
        for (MovingConsumer each : Idle.ALL) {
            if (each.settings.equals(settings)
                    && each.positions.keySet().containsAll(partitions)
                    && Idle.ALL.remove(each)) {
                return each;
            }
        }
        return null;
    }

    /** A partition that it stands at already is read on without a request: what came meanwhile is there. */
    private void assign(Set<TopicPartition> partitions, KafkaBatchInputPartition[] ranges) {
        positions.keySet().retainAll(partitions);
        consumer.assign(partitions);
        consumer.resume(partitions);
        for (KafkaBatchInputPartition range : ranges) {
            TopicPartition partition = range.offsetRange().topicPartition();
            long from = range.offsetRange().fromOffset();
            ends.put(partition, range.offsetRange().untilOffset());
            if (!Long.valueOf(from).equals(positions.put(partition, from))) {
                consumer.seek(partition, from);
            }
        }
    }

    boolean isDone() {
        return ends.isEmpty();
    }

    /** Where its reader has to go on in a partition whose range is not read to its end; null: it is. */
    Long left(TopicPartition partition) {
        return ends.containsKey(partition) ? positions.get(partition) : null;
    }

    /**
     * Adds what comes next of the ranges to {@code records}, one for each partition, in order.
     *
     * @throws OffsetOutOfRangeException records may be lost, or none came: what is left is to be read on by Spark's
     */
    void poll(long timeoutMs, Map<TopicPartition, KafkaRecords> records) {
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(Math.min(timeoutMs, POLL_MS_MAX)));
        Map<TopicPartition, Long> moved = new HashMap<>(), gaps = new HashMap<>();
        ends.forEach((partition, end) -> {
            long from = positions.get(partition), position = consumer.position(partition);
            if (position > from) {
                moved.put(partition, position);
                if (polled.records(partition).size() != position - from) {
                    gaps.put(partition, from);
                }
            }
        });
        if (moved.isEmpty()) {
            throw new OffsetOutOfRangeException(Map.of());
        }
        // Offsets without a record are of what was aborted or compacted, if the log begins before them.
        if (!gaps.isEmpty()) {
            Map<TopicPartition, Long> begins = consumer.beginningOffsets(gaps.keySet());
            gaps.keySet().removeIf(partition -> begins.get(partition) <= gaps.get(partition));
            moved.keySet().removeAll(gaps.keySet());
        }
        moved.forEach((partition, position) -> {
            long end = ends.get(partition);
            for (ConsumerRecord<byte[], byte[]> record : polled.records(partition)) {
                if (record.offset() < end) {
                    records.get(partition).add(record);
                }
            }
            positions.put(partition, position);
            if (position >= end) {
                ends.remove(partition);
                consumer.pause(List.of(partition));
            }
        });
        if (!gaps.isEmpty()) {
            throw new OffsetOutOfRangeException(Map.of());
        }
    }

    /** Its reader has come to the end of all ranges. */
    void giveBack() {
        idleSinceMs = System.currentTimeMillis();
        Idle.ALL.addFirst(this);
    }

    void close() {
        consumer.close(Duration.ZERO);
    }

    private void closeQuietly() {
        try {
            close();
        } catch (KafkaException leftToTheBroker) {
            // nobody waits for it
        }
    }
}
