package exactum;

import java.util.Arrays;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Some records of one partition, with the columns of Spark's Kafka source.
 *
 * <p>Keys and values are the consumer's own arrays. The consumer's records are not kept: their headers hold on to all that
 * came with them from the broker, which may be many times what the columns have. Headers that are asked for are copied.
 */
final class KafkaRecords {
    /** The columns, in the order of KafkaRecordToRowConverter's schema. */
    static final int KEY = 0, VALUE = 1, TOPIC = 2, PARTITION = 3, OFFSET = 4, TIMESTAMP = 5, TIMESTAMP_TYPE = 6;
    /** Only where the source has {@code includeHeaders}. */
    static final int HEADERS = 7;

    private static final DataType[] TYPES = {
        DataTypes.BinaryType,
        DataTypes.BinaryType,
        DataTypes.StringType,
        DataTypes.IntegerType,
        DataTypes.LongType,
        DataTypes.TimestampType,
        DataTypes.IntegerType,
        KafkaHeaders.TYPE
    };
    /** From 1900 to 9999 the calendars and time zones of Java and Spark agree. */
    private static final long PLAIN_MS_MIN = -2_208_988_800_000L + 86_400_000L, PLAIN_MS_MAX = 253_402_300_799_999L;

    private static final String NO_TIME = "exactum-task-failed: {\"error\": \"RowsRefused\", \"message\": \"The record of %s"
            + " has the timestamp %d ms since 1970, which Spark cannot hold. Nothing of its epoch is visible. Leave out the"
            + " column timestamp, or call exactum.decode() before it is looked at, which can put such records aside:"
            + " on_error='dead_letter' (or 'skip').\"}";

    private final TopicPartition partition;
    private final UTF8String topic;
    private byte[][] keys = new byte[64][];
    private byte[][] values = new byte[64][];
    private long[] offsets = new long[64];
    private long[] timestamps = new long[64];
    private int[] timestampTypes = new int[64];
    private final KafkaHeaders headers;
    private int count = 0;
    private long bytes = 0;

    KafkaRecords(TopicPartition partition, boolean withHeaders) {
        this.partition = partition;
        headers = withHeaders ? new KafkaHeaders() : null;
        topic = UTF8String.fromString(partition.topic());
    }

    /** Whether the column says nothing of where a record lies: the others are right for records of one partition. */
    static boolean isOfAnyPartition(int column) {
        return column == KEY || column == VALUE;
    }

    /** Those of another partition, for columns that are of any. */
    void addAll(KafkaRecords others) {
        while (offsets.length < count + others.count) {
            makeRoom();
        }
        System.arraycopy(others.keys, 0, keys, count, others.count);
        System.arraycopy(others.values, 0, values, count, others.count);
        count += others.count;
        bytes += others.bytes;
    }

    private void makeRoom() {
        int more = 2 * offsets.length;
        keys = Arrays.copyOf(keys, more);
        values = Arrays.copyOf(values, more);
        offsets = Arrays.copyOf(offsets, more);
        timestamps = Arrays.copyOf(timestamps, more);
        timestampTypes = Arrays.copyOf(timestampTypes, more);
    }

    void add(ConsumerRecord<byte[], byte[]> record) {
        if (count == offsets.length) {
            makeRoom();
        }
        keys[count] = record.key();
        values[count] = record.value();
        offsets[count] = record.offset();
        timestamps[count] = record.timestamp();
        timestampTypes[count++] = record.timestampType().id;
        bytes += size(record.key()) + size(record.value());
        if (headers != null) {
            bytes += headers.add(record.headers());
        }
    }

    int count() {
        return count;
    }

    /** Of keys, values and headers. */
    long bytes() {
        return bytes;
    }

    UTF8String topic() {
        return topic;
    }

    int partition() {
        return partition.partition();
    }

    byte[] binary(int column, int row) {
        return column == KEY ? keys[row] : values[row];
    }

    /** All keys or all values, and room for more behind them. */
    byte[][] binaries(int column) {
        return column == KEY ? keys : values;
    }

    /** Null where there are none. */
    KafkaHeaders headers() {
        return headers;
    }

    long offset(int row) {
        return offsets[row];
    }

    long timestampMicros(int row) {
        long ms = timestamps[row];
        if (ms >= PLAIN_MS_MIN && ms <= PLAIN_MS_MAX) {
            return ms * 1000;
        }
        try {
            return DateTimeUtils.fromJavaTimestamp(new java.sql.Timestamp(ms)); // as KafkaRecordToRowConverter
        } catch (ArithmeticException tooFar) {
            String place = partition + " at offset " + offsets[row];
            throw new IllegalStateException(String.format(NO_TIME, place, ms)); // failure.py reads it
        }
    }

    /** Whether Spark can hold its timestamp. */
    private boolean hasTime(int row) {
        try {
            timestampMicros(row);
            return true;
        } catch (IllegalStateException tooFar) {
            return false;
        }
    }

    int timestampType(int row) {
        return timestampTypes[row];
    }

    /** {@code nullTimes}: a timestamp that Spark cannot hold is null, instead of an error where it is asked for. */
    ColumnarBatch batch(boolean nullTimes) {
        ColumnVector[] columns = new ColumnVector[headers == null ? HEADERS : TYPES.length];
        for (int column = 0; column < columns.length; column++) {
            columns[column] = new Column(this, column, nullTimes);
        }
        return new ColumnarBatch(columns, count);
    }

    /** The records behind a batch that {@code batch} made. */
    static KafkaRecords of(ColumnarBatch batch) {
        return ((Column) batch.column(0)).records;
    }

    private static int size(byte[] value) {
        return value == null ? 0 : value.length;
    }

    /** Spark's own column of one value, which has nothing to free, with the values of our records in its place. */
    private static final class Column extends ConstantColumnVector {
        private final KafkaRecords records;
        private final int column;
        private final boolean nullTimes;

        Column(KafkaRecords records, int column, boolean nullTimes) {
            super(records.count, TYPES[column]);
            this.records = records;
            this.column = column;
            this.nullTimes = nullTimes && column == TIMESTAMP;
        }

        @Override
        public boolean hasNull() {
            return numNulls() > 0;
        }

        @Override
        public int numNulls() {
            int nulls = 0;
            for (int row = 0; (column <= VALUE || column == HEADERS || nullTimes) && row < records.count; row++) {
                nulls += isNullAt(row) ? 1 : 0;
            }
            return nulls;
        }

        @Override
        public boolean isNullAt(int row) {
            return column == HEADERS
                    ? records.headers.isNull(row)
                    : column <= VALUE ? records.binary(column, row) == null : nullTimes && !records.hasTime(row);
        }

        @Override
        public byte[] getBinary(int row) {
            return records.binary(column, row);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return records.topic;
        }

        @Override
        public int getInt(int row) {
            return column == PARTITION ? records.partition() : records.timestampType(row);
        }

        @Override
        public long getLong(int row) {
            return column == OFFSET ? records.offset(row) : records.timestampMicros(row);
        }

        @Override
        public ColumnarArray getArray(int row) {
            return records.headers.array(row);
        }
    }
}
