import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The plain read_committed reader that judges every contender: what is visible, when, how often.
 *
 * <p>Takes one command on each line of its input and answers each with one line of JSON:
 *
 * <pre>
 * open TOPIC copy             count ids: the first 16 digits of a value; the next 16 are when it was sent, in us
 * open TOPIC aggregate        count the newest count of each key: values are "count,sum"
 * await EXPECTED QUIET_MS TIMEOUT_MS   until EXPECTED are visible and nothing new came for QUIET_MS
 * follow                      read all the time from now on, and keep when each record was seen
 * stats FROM_US TO_US         latencies of what was sent then
 * after SENT_US TIMEOUT_MS    when the first record that was sent then or later was seen
 * state
 * aggregates RECORDS KEYS     how many keys hold what RECORDS records must have left in them
 * </pre>
 */
public final class Reader {
    private final Properties settings = new Properties();
    private KafkaConsumer<byte[], byte[]> ends;
    private KafkaConsumer<byte[], byte[]> consumer;
    private List<TopicPartition> partitions;
    private boolean copy;
    private volatile boolean following;
    private Thread follower;
    private RuntimeException failure;

    private BitSet seen = new BitSet();
    private final Map<String, long[]> aggregates = new HashMap<>();
    private long records, distinct, repeats, newest;
    private long stable, changedUs; // the sum of the stable ends, and when it last changed
    private long[] sent = new long[1 << 16], arrived = new long[1 << 16];
    private int timed;

    public static void main(String[] arguments) throws Exception {
        new Reader(arguments[0]).serve();
    }

    private Reader(String servers) {
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, "10000");
        settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, "200");
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
    }

    private void serve() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.trim().split(" ");
            String answer;
            try {
                answer = switch (words[0]) {
                    case "open" -> open(words[1], words[2].equals("copy"));
                    case "await" -> await(number(words[1]), number(words[2]), number(words[3]));
                    case "follow" -> follow();
                    case "stats" -> stats(number(words[1]), number(words[2]));
                    case "after" -> after(number(words[1]), number(words[2]));
                    case "state" -> state("");
                    case "aggregates" -> aggregates(number(words[1]), (int) number(words[2]));
                    default -> throw new IllegalArgumentException(line);
                };
            } catch (Exception error) {
                answer = "{\"error\": \"" + error.toString().replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
        close();
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }

    private static long nowUs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private String open(String topic, boolean copies) throws InterruptedException {
        close();
        copy = copies;
        seen = new BitSet();
        aggregates.clear();
        records = distinct = repeats = newest = 0;
        timed = 0;
        stable = -1;
        failure = null;
        consumer = new KafkaConsumer<>(settings);
        ends = new KafkaConsumer<>(settings);
        partitions = new ArrayList<>();
        consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        ends.assign(partitions); // never polled; it would warn of partitions that it does not have
        return state("");
    }

    private void close() throws InterruptedException {
        if (follower != null) {
            following = false;
            follower.join();
            follower = null;
        }
        if (consumer != null) {
            consumer.close();
            ends.close();
            consumer = null;
        }
    }

    /**
     * Until the sum of what is there is the expected one; the time is that of the last change of the log's stable end.
     * Copies are not read before the log is long enough: reading takes a core from who commits on the way.
     */
    private String await(long expected, long quietMs, long timeoutMs) throws InterruptedException {
        long endNs = System.nanoTime() + timeoutMs * 1_000_000;
        boolean read = false;
        while (true) {
            long now = ends.endOffsets(partitions).values().stream().mapToLong(Long::longValue).sum();
            if (now != stable) {
                stable = now;
                changedUs = nowUs();
                read = false;
            }
            boolean quiet = nowUs() - changedUs > quietMs * 1000;
            if (quiet && !read && (!copy || now >= expected)) {
                catchUp();
                read = true;
                if (visible() >= expected) {
                    return state(", \"changed_us\": " + changedUs + ", \"complete\": true");
                }
            }
            if (System.nanoTime() > endNs) {
                if (quiet) {
                    catchUp();
                }
                return state(", \"changed_us\": " + changedUs + ", \"complete\": " + (visible() >= expected));
            }
            Thread.sleep(10);
        }
    }

    private synchronized long visible() {
        return copy ? distinct : newest;
    }

    /** Read up to the stable end of every partition. */
    private void catchUp() throws InterruptedException {
        Map<TopicPartition, Long> until = ends.endOffsets(partitions);
        if (follower != null) { // it does; position() is for its thread alone
            Thread.sleep(600);
            check();
            return;
        }
        while (partitions.stream().anyMatch(p -> consumer.position(p) < until.get(p))) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                accept(record, 0);
            }
        }
    }

    private void check() {
        if (failure != null) {
            throw failure;
        }
    }

    private String follow() {
        following = true;
        follower = new Thread(() -> {
            try {
                while (following) {
                    var polled = consumer.poll(Duration.ofMillis(100));
                    if (!polled.isEmpty()) {
                        long us = nowUs();
                        synchronized (this) {
                            for (ConsumerRecord<byte[], byte[]> record : polled) {
                                accept(record, us);
                            }
                        }
                    }
                }
            } catch (RuntimeException error) {
                failure = error;
            }
        }, "follower");
        follower.start();
        return state("");
    }

    private void accept(ConsumerRecord<byte[], byte[]> record, long us) {
        records++;
        byte[] value = record.value();
        if (!copy) {
            String[] parts = new String(value, StandardCharsets.US_ASCII).split(",");
            long count = Long.parseLong(parts[0]);
            long[] known = aggregates.computeIfAbsent(
                    new String(record.key(), StandardCharsets.US_ASCII), k -> new long[2]);
            if (count <= known[0]) {
                repeats++;
            } else {
                newest += count - known[0];
                known[0] = count;
                known[1] = Long.parseLong(parts[1]);
            }
            return;
        }
        int id = (int) digits(value, 0);
        if (seen.get(id)) {
            repeats++;
        } else {
            seen.set(id);
            distinct++;
        }
        if (us != 0) {
            if (timed == sent.length) {
                sent = Arrays.copyOf(sent, timed * 2);
                arrived = Arrays.copyOf(arrived, timed * 2);
            }
            sent[timed] = digits(value, 16);
            arrived[timed++] = us;
        }
    }

    private static long digits(byte[] value, int from) {
        long found = 0;
        for (int i = from; i < from + 16; i++) {
            found = found * 10 + (value[i] - '0');
        }
        return found;
    }

    private synchronized String stats(long fromUs, long toUs) {
        check();
        long[] latencies = new long[timed];
        int count = 0;
        for (int i = 0; i < timed; i++) {
            if (sent[i] >= fromUs && sent[i] < toUs) {
                latencies[count++] = arrived[i] - sent[i];
            }
        }
        Arrays.sort(latencies, 0, count);
        StringBuilder answer = new StringBuilder("{\"records\": " + count);
        if (count > 0) {
            for (int percent : new int[] {50, 95, 99, 100}) {
                long us = latencies[(int) Math.min(count - 1, (long) count * percent / 100)];
                answer.append(", \"p").append(percent).append("_ms\": ").append(us / 1000.0);
            }
        }
        return answer.append("}").toString();
    }

    private String after(long sentUs, long timeoutMs) throws InterruptedException {
        long endNs = System.nanoTime() + timeoutMs * 1_000_000;
        int looked = 0;
        while (true) {
            check();
            synchronized (this) {
                for (; looked < timed; looked++) {
                    if (sent[looked] >= sentUs) {
                        return "{\"seen_us\": " + arrived[looked] + "}";
                    }
                }
            }
            if (System.nanoTime() > endNs) {
                return "{\"seen_us\": null}";
            }
            Thread.sleep(5);
        }
    }

    private synchronized String state(String more) {
        return "{\"records\": " + records + ", \"visible\": " + visible() + ", \"repeats\": " + repeats + more + "}";
    }

    /** Record i has key i modulo KEYS and adds i: what each key must hold after RECORDS of them. */
    private synchronized String aggregates(long of, int keys) {
        long right = 0;
        for (int key = 0; key < Math.min(keys, of); key++) {
            long count = (of - key - 1) / keys + 1;
            long sum = count * key + keys * (count * (count - 1) / 2);
            long[] found = aggregates.get(String.format("%08d", key));
            if (found != null && found[0] == count && found[1] == sum) {
                right++;
            }
        }
        return "{\"keys_right\": " + right + ", \"keys\": " + Math.min(keys, of) + "}";
    }
}
