import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Kafka Streams, exactly_once_v2. Arguments are NAME=VALUE; it runs until it is killed. */
public final class StreamsPeer {
    public static void main(String[] arguments) {
        Map<String, String> order = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            order.put(argument.substring(0, at), argument.substring(at + 1));
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, order.get("group"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, order.get("servers"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, order.get("parallelism"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, order.get("interval_ms"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, order.get("folder"));
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // A process that comes back under its own name need not wait until its dead self has left the group.
        settings.put(StreamsConfig.consumerPrefix("group.instance.id"), "streams");
        settings.put(StreamsConfig.producerPrefix("acks"), "all");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), order.get("linger_ms"));
        settings.put(StreamsConfig.producerPrefix("batch.size"), order.get("batch_bytes"));
        settings.put(StreamsConfig.producerPrefix("compression.type"), "none");
        settings.put(StreamsConfig.producerPrefix("buffer.memory"), order.get("buffer_bytes"));
        StreamsBuilder builder = new StreamsBuilder();
        switch (order.get("job")) {
            case "copy" -> copy(builder, order);
            case "aggregate" -> aggregate(builder, order);
            default -> throw new IllegalArgumentException(order.get("job"));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
    }

    private static void copy(StreamsBuilder builder, Map<String, String> order) {
        builder.stream(order.get("source"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .to(order.get("target"), Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    private static void aggregate(StreamsBuilder builder, Map<String, String> order) {
        builder.stream(order.get("source"), Consumed.with(Serdes.Bytes(), Serdes.ByteArray()))
                .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()))
                .aggregate(
                        () -> new byte[16],
                        (key, value, state) -> {
                            ByteBuffer known = ByteBuffer.wrap(state);
                            long id = Long.parseLong(new String(value, 0, 16, StandardCharsets.US_ASCII));
                            return ByteBuffer.allocate(16)
                                    .putLong(known.getLong() + 1)
                                    .putLong(known.getLong() + id)
                                    .array();
                        },
                        Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("totals")
                                .withKeySerde(Serdes.Bytes())
                                .withValueSerde(Serdes.ByteArray()))
                .toStream()
                .mapValues(state -> {
                    ByteBuffer found = ByteBuffer.wrap(state);
                    return (found.getLong() + "," + found.getLong()).getBytes(StandardCharsets.US_ASCII);
                })
                .to(order.get("target"), Produced.with(Serdes.Bytes(), Serdes.ByteArray()));
    }
}
