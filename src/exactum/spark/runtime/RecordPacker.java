package exactum;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

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
 *   <li>timestampType: ints.
 * </ul>
 */
final class RecordPacker {
    /** Another one for each change: executors may have another jar than the workers' exactum. */
    private static final int LAYOUT = 1;

    private RecordPacker() {}

    static byte[] packed(KafkaRecords records, int[] columns) {
        long size = 8;
        for (int column : columns) {
            size += size(records, column);
        }
        ByteBuffer to = ByteBuffer.allocate(Math.toIntExact(size)).order(ByteOrder.LITTLE_ENDIAN);
        to.putInt(LAYOUT).putInt(records.count());
        for (int column : columns) {
            put(records, column, to);
        }
        return to.array();
    }

    private static long size(KafkaRecords records, int column) {
        int count = records.count();
        switch (column) {
            case KafkaRecords.KEY:
            case KafkaRecords.VALUE:
                long bytes = 0;
                int nulls = 0;
                for (int row = 0; row < count; row++) {
                    byte[] value = records.binary(column, row);
                    if (value == null) {
                        nulls++;
                    } else {
                        bytes += value.length;
                    }
                }
                return nulls == count
                        ? 8
                        : 8 + (nulls > 0 ? padded(bits(count)) : 0) + padded(4L * (count + 1)) + padded(bytes);
            case KafkaRecords.TOPIC:
                return 8 + padded(records.topic().numBytes());
            case KafkaRecords.PARTITION:
                return 8;
            case KafkaRecords.OFFSET:
            case KafkaRecords.TIMESTAMP:
                return 8L * count;
            default:
                return padded(4L * count);
        }
    }

    private static void put(KafkaRecords records, int column, ByteBuffer to) {
        int count = records.count();
        switch (column) {
            case KafkaRecords.KEY:
            case KafkaRecords.VALUE:
                putBinary(records, column, to);
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
            default:
                for (int row = 0; row < count; row++) {
                    to.putInt(records.timestampType(row));
                }
        }
        pad(to);
    }

    private static void putBinary(KafkaRecords records, int column, ByteBuffer to) {
        int count = records.count(), nulls = 0;
        for (int row = 0; row < count; row++) {
            nulls += records.binary(column, row) == null ? 1 : 0;
        }
        to.putLong(nulls);
        if (nulls == count) {
            return;
        }
        if (nulls > 0) {
            int first = to.position();
            for (int row = 0; row < count; row++) {
                if (records.binary(column, row) != null) {
                    int place = first + row / 8;
                    to.put(place, (byte) (to.get(place) | 1 << row % 8));
                }
            }
            to.position(first + bits(count));
            pad(to);
        }
        int offsets = to.position(), bytes = 0;
        to.position(offsets + 4 * (count + 1));
        pad(to);
        for (int row = 0; row < count; row++) {
            byte[] value = records.binary(column, row);
            if (value != null) {
                to.put(value);
                bytes += value.length;
            }
            to.putInt(offsets + 4 * (row + 1), bytes);
        }
    }

    private static int bits(int count) {
        return (count + 7) / 8;
    }

    private static long padded(long bytes) {
        return (bytes + 7) / 8 * 8;
    }

    private static void pad(ByteBuffer to) {
        to.position((int) padded(to.position()));
    }
}
