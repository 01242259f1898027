package exactum;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

/**
 * Says whether records in columns keep what a broker's answer had for their headers: "kept" or "free", first where headers
 * are not asked for, then where they are.
 */
final class HeldRecords {
    public static void main(String[] arguments) throws InterruptedException {
        look(new KafkaRecords(new TopicPartition("topic", 0), false));
        look(new KafkaRecords(new TopicPartition("topic", 0), true));
    }

    private static void look(KafkaRecords records) throws InterruptedException {
        WeakReference<byte[]> answer = added(records);
        for (int tries = 0; tries < 50 && answer.get() != null; tries++) {
            System.gc();
            Thread.sleep(10);
        }
        System.out.println(records.count() + (answer.get() == null ? " free" : " kept"));
    }

    private static WeakReference<byte[]> added(KafkaRecords records) {
        byte[] answer = new byte[1 << 20];
        ByteBuffer key = ByteBuffer.wrap(answer, 0, 1), value = ByteBuffer.wrap(answer, 1, 9);
        RecordHeaders headers = new RecordHeaders(new Header[] {new RecordHeader(key, value)});
        records.add(new ConsumerRecord<>(
                "topic", 0, 0, 0, TimestampType.CREATE_TIME, 1, 1, new byte[1], new byte[1], headers, Optional.empty()));
        return new WeakReference<>(answer);
    }
}
