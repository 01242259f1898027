package exactum;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.spark.sql.kafka010.SubscribeStrategy;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Whether a checkpoint goes on with the topics that it has read. The driver's Python asks that as soon as a query has a
 * micro-batch; one that finds nothing new has none, though its topic may be another one of as many records.
 */
final class TopicIds {
    /** As watched_source.py has it: a broker may be behind. */
    private static final long SURE_AFTER_NANOS = 4_000_000_000L;
    private static final long SURE_PAUSE_MS = 400;
    private static final String KAFKA = "kafka.";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TypeReference<Map<String, Map<String, Long>>> OFFSETS = new TypeReference<>() {};

    private static final int RACES_MAX = 10;

    /** Where query_record.py keeps them. Null: the checkpoint lies in no folder. */
    private final Path records;
    /** Spark's number of the source. */
    private final String number;
    private final Map<String, Object> client = new HashMap<>();

    /** For a source's folder within the checkpoint, {@code file:/data/checkpoint/sources/0}, and its options. */
    TopicIds(String source, CaseInsensitiveStringMap options) {
        String path = source.startsWith("file:") ? "/" + source.substring(5).replaceFirst("^/+", "") : source;
        Path folder = path.startsWith("/") ? Path.of(path) : null;
        records = folder == null ? null : folder.resolve("../../exactum/query").normalize();
        number = source.substring(source.lastIndexOf('/') + 1);
        options.asCaseSensitiveMap().forEach((name, value) -> {
            if (name.toLowerCase(Locale.ROOT).startsWith(KAFKA)) {
                client.put(name.substring(KAFKA.length()).toLowerCase(Locale.ROOT), value);
            }
        });
    }

    /** Throws where one of the topics in these offsets is for sure another one than the checkpoint has on record. */
    void check(String offsets) throws IOException, InterruptedException {
        Map<String, String> known = known();
        known.keySet().retainAll(JSON.readValue(offsets, OFFSETS).keySet());
        if (known.isEmpty()) {
            return;
        }
        try (Admin admin = new SubscribeStrategy(CollectionConverters.asScala(List.<String>of()).toSeq())
                .createAdmin(client)) {
            long deadline = System.nanoTime() + SURE_AFTER_NANOS;
            String another = another(admin, known);
            while (another != null && System.nanoTime() - deadline < 0) {
                Thread.sleep(SURE_PAUSE_MS);
                another = another(admin, known);
            }
            if (another != null) {
                throw new IllegalStateException(another);
            }
        }
    }

    private Map<String, String> known() throws IOException {
        Map<String, String> known = new TreeMap<>();
        newest().path("topics").path(number).fields().forEachRemaining(topic -> {
            JsonNode id = topic.getValue().path("topic_id");
            if (id.isTextual()) { // brokers before Kafka 2.8 have none
                known.put(topic.getKey(), id.asText());
            }
        });
        return known;
    }

    /** Of the files with a number the highest one that can be read, as Python takes it. */
    private JsonNode newest() throws IOException {
        IOException trouble = null;
        for (int race = 0; race < RACES_MAX; race++) { // those that were listed may be swept since
            List<Long> numbers = numbers();
            if (numbers.isEmpty()) {
                return MissingNode.getInstance();
            }
            for (Long each : numbers) {
                try {
                    return JSON.readTree(records.resolve(each + ".json").toFile());
                } catch (JsonProcessingException | FileNotFoundException error) {
                    trouble = error;
                }
            }
        }
        throw trouble;
    }

    /** The highest first. */
    private List<Long> numbers() throws IOException {
        List<Long> found = new ArrayList<>();
        if (records != null && Files.isDirectory(records)) {
            try (DirectoryStream<Path> files = Files.newDirectoryStream(records, "*.json")) {
                for (Path file : files) {
                    String name = file.getFileName().toString();
                    if (name.matches("\\d+\\.json")) {
                        found.add(Long.valueOf(name.substring(0, name.length() - ".json".length())));
                    }
                }
            }
        }
        found.sort(Comparator.reverseOrder());
        return found;
    }

    /** What is wrong; null: nothing. A topic that is away or hidden is Spark's to report. */
    private static String another(Admin admin, Map<String, String> known) throws InterruptedException {
        Map<String, KafkaFuture<TopicDescription>> found =
                admin.describeTopics(TopicCollection.ofTopicNames(known.keySet())).topicNameValues();
        for (Map.Entry<String, String> then : known.entrySet()) {
            try {
                Uuid id = found.get(then.getKey()).get().topicId();
                // as librdkafka writes it, and so the record: with the other alphabet of base64
                String now = id.toString().replace('-', '+').replace('_', '/');
                if (!id.equals(Uuid.ZERO_UUID) && !now.equals(then.getValue())) {
                    return "exactum.errors.CheckpointRefused: [TOPIC_CHANGED] exactum refuses to go on: the topic '"
                            + then.getKey() + "' was deleted and made anew since the checkpoint began to read it, or "
                            + "this is another cluster (topic id " + then.getValue() + " then, " + now + " now). The "
                            + "checkpoint's offsets belong to the old one. Start a new query with a checkpoint "
                            + "location of its own; there start= says where it begins. Nothing was written.";
                }
            } catch (ExecutionException error) {
                Throwable cause = error.getCause();
                if (!(cause instanceof UnknownTopicOrPartitionException || cause instanceof AuthorizationException)) {
                    throw new IllegalStateException("the topics could not be looked at: " + cause, error);
                }
            }
        }
        return null;
    }
}
