import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.jdbc.JdbcConnectionOptions;
import org.apache.flink.connector.jdbc.JdbcExactlyOnceOptions;
import org.apache.flink.connector.jdbc.JdbcExecutionOptions;
import org.apache.flink.connector.jdbc.core.datastream.sink.JdbcSink;
import org.apache.flink.connector.jdbc.core.datastream.sink.JdbcSinkBuilder;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaSinkBuilder;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.postgresql.xa.PGXADataSource;

/**
 * Flink in one JVM (MiniCluster). Arguments are NAME=VALUE; it runs until it is killed.
 *
 * <p>It restarts from the newest complete externalized checkpoint in its folder, if there is one.
 */
public final class FlinkPeer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> order = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            order.put(argument.substring(0, at), argument.substring(at + 1));
        }
        Path checkpoints = Path.of(order.get("folder"), "checkpoints");
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", order.get("interval_ms") + " ms");
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("parallelism.default", order.get("parallelism"));
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("restart-strategy.type", "disable");
        settings.setString("rest.bind-port", "0");
        newest(checkpoints).ifPresent(path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
        StreamExecutionEnvironment job = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        switch (order.get("job")) {
            case "copy" -> job.fromSource(source(order, new Value()), WatermarkStrategy.noWatermarks(), "source")
                    .sinkTo(kafka(order, null, new Itself()));
            case "aggregate" -> job.fromSource(source(order, new KeyAndId()), WatermarkStrategy.noWatermarks(), "source")
                    .keyBy(record -> record.f0, Types.STRING)
                    .process(new Totals())
                    .sinkTo(kafka(order, new TotalKey(), new TotalValue()));
            case "postgres" -> postgres(
                    job.fromSource(source(order, new Value()), WatermarkStrategy.noWatermarks(), "source"), order);
            case "fan-out" -> {
                DataStream<byte[]> rows =
                        job.fromSource(source(order, new Value()), WatermarkStrategy.noWatermarks(), "source");
                rows.sinkTo(kafka(order, null, new Itself()));
                postgres(rows, order);
            }
            default -> throw new IllegalArgumentException(order.get("job"));
        }
        job.execute();
    }

    /** The newest checkpoint that has its metadata: what is not complete has none. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        if (!Files.isDirectory(checkpoints)) {
            return Optional.empty();
        }
        try (Stream<Path> found = Files.walk(checkpoints, 3)) {
            return found.filter(path -> path.endsWith("_metadata"))
                    .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    private static <T> KafkaSource<T> source(Map<String, String> order, KafkaRecordDeserializationSchema<T> schema) {
        return KafkaSource.<T>builder()
                .setBootstrapServers(order.get("servers"))
                .setTopics(order.get("source"))
                .setGroupId(order.get("group"))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setDeserializer(schema)
                .build();
    }

    private static <T> KafkaSink<T> kafka(
            Map<String, String> order, SerializationSchema<T> key, SerializationSchema<T> value) {
        Properties producer = new Properties();
        producer.put("acks", "all");
        producer.put("linger.ms", order.get("linger_ms"));
        producer.put("batch.size", order.get("batch_bytes"));
        producer.put("buffer.memory", order.get("buffer_bytes"));
        producer.put("compression.type", "none");
        producer.put("transaction.timeout.ms", "600000");
        var schema = KafkaRecordSerializationSchema.<T>builder()
                .setTopic(order.get("target"))
                .setValueSerializationSchema(value);
        if (key != null) {
            schema = schema.setKeySerializationSchema(key);
        }
        boolean exactly = order.get("guarantee").equals("exactly once");
        KafkaSinkBuilder<T> sink = KafkaSink.<T>builder()
                .setBootstrapServers(order.get("servers"))
                .setKafkaProducerConfig(producer)
                .setDeliveryGuarantee(exactly ? DeliveryGuarantee.EXACTLY_ONCE : DeliveryGuarantee.AT_LEAST_ONCE)
                .setRecordSerializer(schema.build());
        return (exactly ? sink.setTransactionalIdPrefix(order.get("group")) : sink).build();
    }

    private static void postgres(DataStream<byte[]> rows, Map<String, String> order) {
        JdbcSinkBuilder<byte[]> sink = JdbcSink.<byte[]>builder()
                .withQueryStatement(
                        "INSERT INTO " + order.get("table") + " (id, sent, text) VALUES (?, ?, ?)",
                        (statement, value) -> {
                            String text = new String(value, StandardCharsets.US_ASCII);
                            statement.setLong(1, Long.parseLong(text, 0, 16, 10));
                            statement.setLong(2, Long.parseLong(text, 16, 32, 10));
                            statement.setString(3, text.substring(32));
                        })
                .withExecutionOptions(JdbcExecutionOptions.builder()
                        .withBatchSize(10_000)
                        .withBatchIntervalMs(0)
                        .withMaxRetries(0)
                        .build());
        String url = order.get("jdbc_url"), user = order.get("user"), password = order.get("password");
        if (order.get("guarantee").equals("exactly once")) {
            rows.sinkTo(sink.buildExactlyOnce(
                    JdbcExactlyOnceOptions.builder().withTransactionPerConnection(true).build(),
                    () -> {
                        PGXADataSource server = new PGXADataSource();
                        server.setUrl(url);
                        server.setUser(user);
                        server.setPassword(password);
                        return server;
                    }));
        } else {
            rows.sinkTo(sink.buildAtLeastOnce(new JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
                    .withUrl(url)
                    .withUsername(user)
                    .withPassword(password)
                    .withDriverName("org.postgresql.Driver")
                    .build()));
        }
    }

    private static final class Value implements KafkaRecordDeserializationSchema<byte[]> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<byte[]> out) {
            out.collect(record.value());
        }

        @Override
        public TypeInformation<byte[]> getProducedType() {
            return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
        }
    }

    private static final class KeyAndId implements KafkaRecordDeserializationSchema<Tuple2<String, Long>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<String, Long>> out) {
            String id = new String(record.value(), 0, 16, StandardCharsets.US_ASCII);
            out.collect(Tuple2.of(new String(record.key(), StandardCharsets.US_ASCII), Long.parseLong(id)));
        }

        @Override
        public TypeInformation<Tuple2<String, Long>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.LONG);
        }
    }

    /** One record out for each record in: (key, "count,sum"). */
    private static final class Totals extends KeyedProcessFunction<String, Tuple2<String, Long>, Tuple2<String, String>> {
        private transient ValueState<Tuple2<Long, Long>> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("totals", Types.TUPLE(Types.LONG, Types.LONG)));
        }

        @Override
        public void processElement(
                Tuple2<String, Long> record, Context context, Collector<Tuple2<String, String>> out)
                throws IOException {
            Tuple2<Long, Long> known = state.value();
            Tuple2<Long, Long> now = known == null
                    ? Tuple2.of(1L, record.f1)
                    : Tuple2.of(known.f0 + 1, known.f1 + record.f1);
            state.update(now);
            out.collect(Tuple2.of(record.f0, now.f0 + "," + now.f1));
        }
    }

    private static final class Itself implements SerializationSchema<byte[]>, Serializable {
        @Override
        public byte[] serialize(byte[] value) {
            return value;
        }
    }

    private static final class TotalKey implements SerializationSchema<Tuple2<String, String>>, Serializable {
        @Override
        public byte[] serialize(Tuple2<String, String> total) {
            return total.f0.getBytes(StandardCharsets.US_ASCII);
        }
    }

    private static final class TotalValue implements SerializationSchema<Tuple2<String, String>>, Serializable {
        @Override
        public byte[] serialize(Tuple2<String, String> total) {
            return total.f1.getBytes(StandardCharsets.US_ASCII);
        }
    }
}
