package exactum;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import java.util.TreeMap;

/** Where a bounded source ends. Offsets are JSON as Spark writes it: {"orders":{"0":123,"1":7}}. */
final class StopOffsets {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TypeReference<Map<String, Map<String, Long>>> OFFSETS = new TypeReference<>() {};

    private final Map<String, Map<String, Long>> stop;

    StopOffsets(String json) {
        stop = parsed(json);
    }

    /**
     * Where a micro-batch ends that begins at {@code start} and could be read up to {@code end}: not behind the stop. A
     * partition that is there already and has no stop stays where it is. One that is new is left out, for whoever reads
     * on without this stop. An end before the start is Spark's to report.
     */
    String capped(String start, String end) {
        Map<String, Map<String, Long>> starts = parsed(start);
        Map<String, Map<String, Long>> capped = new TreeMap<>();
        parsed(end).forEach((topic, ends) -> ends.forEach((partition, last) -> {
            long first = of(starts, topic, partition, -1);
            long highest = Math.max(first, of(stop, topic, partition, 0));
            if (first >= 0 || highest > 0) {
                capped.computeIfAbsent(topic, name -> new TreeMap<>()).put(partition, Math.min(last, highest));
            }
        }));
        try {
            return JSON.writeValueAsString(capped);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    private static long of(Map<String, Map<String, Long>> offsets, String topic, String partition, long none) {
        return offsets.getOrDefault(topic, Map.of()).getOrDefault(partition, none);
    }

    private static Map<String, Map<String, Long>> parsed(String json) {
        try {
            return JSON.readValue(json, OFFSETS);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(json, error);
        }
    }
}
