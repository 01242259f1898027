package exactum;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.kafka010.JsonUtils;
import org.apache.spark.sql.kafka010.KafkaSourceOffset;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Where a bounded source ends. */
final class StopOffsets {
    private final Map<TopicPartition, Object> stop;

    /** As Spark writes offsets: {"orders":{"0":123,"1":7}}. */
    StopOffsets(String json) {
        stop = CollectionConverters.asJava(JsonUtils.partitionOffsets(json));
    }

    /**
     * Where a micro-batch ends that begins at {@code start} and could be read up to {@code end}: not behind the stop. A
     * partition that is there already and has no stop stays where it is. One that is new is left out, for whoever reads
     * on without this stop. An end before the start is Spark's to report.
     */
    Offset capped(Offset start, Offset end) {
        Map<TopicPartition, Object> starts = of(start), capped = new HashMap<>();
        of(end).forEach((partition, last) -> {
            long first = (long) starts.getOrDefault(partition, -1L);
            long highest = Math.max(first, (long) stop.getOrDefault(partition, 0L));
            if (first >= 0 || highest > 0) {
                capped.put(partition, Math.min((long) last, highest));
            }
        });
        return new KafkaSourceOffset(Map$.MODULE$.from(CollectionConverters.asScala(capped)));
    }

    private static Map<TopicPartition, Object> of(Offset offset) {
        return CollectionConverters.asJava(((KafkaSourceOffset) offset).partitionToOffsets());
    }
}
