package exactum;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.function.IntPredicate;

/**
 * Packs columns of Kafka records into one array of bytes, as packed_records.py unpacks them.
 *
 * <p>Numbers are little-endian, and everything begins at a multiple of eight. First the number of this layout and the number
 * of records (ints). Then each column:
 *
 * <ul>
 *   <li>key, value: the number of nulls (long), and unless all are null: Arrow's bits of validity if there are nulls,
 *       Arrow's offsets, which end with the number of bytes, and the bytes;
 *   <li>topic: its length (long) and bytes, once;
 *   <li>partition: once (long);
 *   <li>offset, timestamp (microseconds): longs;
 *   <li>timestampType: ints;
 *   <li>headers: the number of records without any (long), which are null, and unless all are: Arrow's bits of validity if
 *       there are nulls, Arrow's offsets, and of all headers the names and then the values, each as a key or a value is.
 * </ul>
 */
final class RecordPacker {
    /** Another one for each change: executors may have another jar than the workers' exactum. */
    private static final int LAYOUT = 2;

    private RecordPacker() {}

    static byte[] packed(KafkaRecords records, int[] columns) {
        // No column takes more for each record than a long, beside the bytes of keys, values and headers.
        long most = records.bytes() + records.topic().numBytes() + columns.length * (8L * records.count() + 128) + 8;
        ByteBuffer to = ByteBuffer.allocate(Math.toIntExact(most)).order(ByteOrder.LITTLE_ENDIAN);
        to.putInt(LAYOUT).putInt(records.count());
        for (int column : columns) {
            put(records, column, to);
        }
        return Arrays.copyOf(to.array(), to.position());
    }

    private static void put(KafkaRecords records, int column, ByteBuffer to) {
        int count = records.count();
        switch (column) {
            case KafkaRecords.KEY:
            case KafkaRecords.VALUE:
                putBinary(records.binaries(column), count, to);
                break;
            case KafkaRecords.TOPIC:
                to.putLong(records.topic().numBytes()).put(records.topic().getBytes());
                break;
            case KafkaRecords.PARTITION:
                to.putLong(records.partition());
                break;
            case KafkaRecords.OFFSET:
                for (int row = 0; row < count; row++) {
                    to.putLong(records.offset(row));
                }
                break;
            case KafkaRecords.TIMESTAMP:
                for (int row = 0; row < count; row++) {
                    to.putLong(records.timestampMicros(row));
                }
                break;
            case KafkaRecords.HEADERS:
                putHeaders(records.headers(), count, to);
                break;
            default:
                for (int row = 0; row < count; row++) {
                    to.putInt(records.timestampType(row));
                }
        }
        pad(to);
    }

    private static void putBinary(byte[][] values, int count, ByteBuffer to) {
        if (!putNulls(row -> values[row] == null, count, to)) {
            return;
        }
        int offsets = to.position(), bytes = 0;
        to.position(offsets + 4 * (count + 1));
        pad(to);
        for (int row = 0; row < count; row++) {
            byte[] value = values[row];
            if (value != null) {
                to.put(value);
                bytes += value.length;
            }
            to.putInt(offsets + 4 * (row + 1), bytes);
        }
    }

    private static void putHeaders(KafkaHeaders headers, int count, ByteBuffer to) {
        if (!putNulls(headers::isNull, count, to)) {
            return;
        }
        to.putInt(0);
        for (int row = 0; row < count; row++) {
            to.putInt(headers.end(row));
        }
        pad(to);
        putBinary(headers.names(), headers.count(), to);
        pad(to);
        putBinary(headers.values(), headers.count(), to);
    }

    /** The number of nulls and, if there are some but not all are, the bits of validity; whether values follow. */
    private static boolean putNulls(IntPredicate isNull, int count, ByteBuffer to) {
        int nulls = nulls(isNull, count);
        to.putLong(nulls);
        if (nulls > 0 && nulls < count) {
            int first = to.position();
            for (int row = 0; row < count; row++) {
                if (!isNull.test(row)) {
                    int place = first + row / 8;
                    to.put(place, (byte) (to.get(place) | 1 << row % 8));
                }
            }
            to.position(first + bits(count));
            pad(to);
        }
        return nulls < count;
    }

    private static int nulls(IntPredicate isNull, int count) {
        int nulls = 0;
        for (int row = 0; row < count; row++) {
            nulls += isNull.test(row) ? 1 : 0;
        }
        return nulls;
    }

    private static int bits(int count) {
        return (count + 7) / 8;
    }

    private static void pad(ByteBuffer to) {
        to.position((to.position() + 7) / 8 * 8);
    }
}
