package exactum;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;

/**
 * A consumer that reads ranges of many partitions, one after the other, for micro-batches of more partitions than Spark
 * keeps consumers for.
 *
 * <p>Spark has a consumer for each partition. Those that it does not keep are made anew in every micro-batch, and to make
 * one costs more than to read a few records. Of these there are as many as tasks read at once.
 *
 * <p>It hands out what is there for sure. Of anything else Spark's own consumer has to say what it is, and what
 * failOnDataLoss makes of it.
 */
final class MovingConsumer {
    /** Among the settings of Kafka's consumer, which passes them on. */
    private static final String WANTED = "exactum.moving.consumer";
    /** Where Spark logs in by delegation tokens, it alone knows when they change (KafkaTokenUtil.scala). */
    private static final String TOKENS = "spark.kafka.clusters.";

    private static final String KEPT = "spark.kafka.consumer.cache.capacity";
    private static final int KEPT_DEFAULT = 64;
    private static final String FETCH = "max.partition.fetch.bytes";
    /** What lies behind a range is fetched in vain, twice as much at most: nobody keeps it for the next micro-batch. */
    private static final int FETCH_MAX = 256 << 10;

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
                            each.close();
                        }
                    }
                }
            }, IDLE_MS_MAX, IDLE_MS_MAX);
        }
    }

    private final Map<String, Object> settings;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private TopicPartition partition;
    private Iterator<ConsumerRecord<byte[], byte[]>> polled;
    /** The first offset of which it is not known whether a record is there. */
    private long position;

    private volatile long idleSinceMs;

    private MovingConsumer(Map<String, Object> settings) {
        this.settings = settings;
        consumer = new KafkaConsumer<>(settings);
    }

    /** On the driver: the ranges of a micro-batch; where they are many, so that executors read them by such consumers. */
    static InputPartition[] wantedFor(InputPartition[] ranges) {
        SparkConf conf = SparkEnv.get().conf();
        long partitions = Arrays.stream(ranges)
                .map(range -> ((KafkaBatchInputPartition) range).offsetRange().topicPartition())
                .distinct()
                .count();
        if (partitions <= conf.getInt(KEPT, KEPT_DEFAULT) || conf.getAllWithPrefix(TOKENS).length > 0) {
            return ranges;
        }
        Map<String, Object> settings = new HashMap<>(((KafkaBatchInputPartition) ranges[0]).executorKafkaParams());
        settings.put(WANTED, "true");
        settings.merge(FETCH, FETCH_MAX, (given, most) -> Math.min(Integer.parseInt(given.toString()), (int) most));
        InputPartition[] wanted = new InputPartition[ranges.length];
        for (int place = 0; place < ranges.length; place++) {
            KafkaBatchInputPartition range = (KafkaBatchInputPartition) ranges[place];
            wanted[place] = range.copy(
                    range.offsetRange(), settings, range.pollTimeoutMs(), range.failOnDataLoss(), range.includeHeaders());
        }
        return wanted;
    }

    /** One that stands at the begin of a range, for its reader alone; null: the range is read by Spark's. */
    static MovingConsumer take(KafkaBatchInputPartition range) {
        Map<String, Object> settings = range.executorKafkaParams();
        if (!settings.containsKey(WANTED)) {
            return null;
        }
        for (MovingConsumer each : Idle.ALL) {
            if (each.settings.equals(settings) && Idle.ALL.remove(each)) {
                return each.at(range);
            }
        }
        return new MovingConsumer(settings).at(range);
    }

    private MovingConsumer at(KafkaBatchInputPartition range) {
        partition = range.offsetRange().topicPartition();
        position = range.offsetRange().fromOffset();
        polled = Collections.emptyIterator();
        consumer.assign(List.of(partition));
        consumer.seek(partition, position);
        return this;
    }

    /**
     * The next record before {@code untilOffset}; null where all others were aborted or compacted.
     *
     * @throws OffsetOutOfRangeException records may be lost, or none came: it is to be read on by Spark's
     */
    ConsumerRecord<byte[], byte[]> next(long untilOffset, long timeoutMs) {
        while (!polled.hasNext() && position < untilOffset) {
            poll(Math.min(timeoutMs, POLL_MS_MAX));
        }
        ConsumerRecord<byte[], byte[]> record = polled.hasNext() ? polled.next() : null;
        return record != null && record.offset() < untilOffset ? record : null;
    }

    private void poll(long timeoutMs) {
        List<ConsumerRecord<byte[], byte[]>> records = consumer.poll(Duration.ofMillis(timeoutMs)).records(partition);
        long from = position;
        position = consumer.position(partition);
        boolean isWhole = records.size() == position - from;
        // Offsets without a record are of what was aborted or compacted, if the log begins before them.
        if (position == from || !isWhole && consumer.beginningOffsets(List.of(partition)).get(partition) > from) {
            throw new OffsetOutOfRangeException(Map.of(partition, from));
        }
        polled = records.iterator();
    }

    /** Its reader has come to the end of its range. */
    void giveBack() {
        polled = null;
        idleSinceMs = System.currentTimeMillis();
        Idle.ALL.addFirst(this);
    }

    void close() {
        consumer.close(Duration.ZERO);
    }
}
