package exactum;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;

/** The headers of some records: names and values of all of them, one after the other. A record without headers has null. */
final class KafkaHeaders {
    /** As KafkaRecordToRowConverter has it. */
    static final ArrayType TYPE = DataTypes.createArrayType(DataTypes.createStructType(new StructField[] {
        DataTypes.createStructField("key", DataTypes.StringType, true),
        DataTypes.createStructField("value", DataTypes.BinaryType, true)
    }));

    /** What a header takes beside its name and its value, about: many that have neither are no small record. */
    private static final int OWN_BYTES = 48;

    private byte[][] names = new byte[64][];
    private byte[][] values = new byte[64][];
    private int count = 0;
    private int[] ends = new int[64];
    private int rows = 0;
    private WritableColumnVector cells;

    /** Those of one more record; returns what they take, in bytes. */
    long add(Headers headers) {
        long bytes = 0;
        for (Header header : headers) {
            if (count == names.length) {
                names = Arrays.copyOf(names, 2 * count);
                values = Arrays.copyOf(values, 2 * count);
            }
            // By way of a String, as Spark does: bytes that are no text become what Java makes of them.
            byte[] name = header.key().getBytes(StandardCharsets.UTF_8), value = header.value();
            names[count] = name;
            values[count++] = value;
            bytes += OWN_BYTES + name.length + (value == null ? 0 : value.length);
        }
        if (rows == ends.length) {
            ends = Arrays.copyOf(ends, 2 * rows);
        }
        ends[rows++] = count;
        return bytes;
    }

    /** Of all records. */
    int count() {
        return count;
    }

    /** Of all headers, and room for more behind them. */
    byte[][] names() {
        return names;
    }

    /** Of all headers, and room for more behind them. */
    byte[][] values() {
        return values;
    }

    /** How many headers this record and those before it have. */
    int end(int row) {
        return ends[row];
    }

    boolean isNull(int row) {
        return begin(row) == ends[row];
    }

    ColumnarArray array(int row) {
        return new ColumnarArray(cells(), begin(row), ends[row] - begin(row));
    }

    private int begin(int row) {
        return row == 0 ? 0 : ends[row - 1];
    }

    /** Structures of a name and a value, for Spark to read; made when they are asked for. */
    private ColumnVector cells() {
        if (cells == null) {
            cells = new OnHeapColumnVector(Math.max(1, count), TYPE.elementType());
            for (int at = 0; at < count; at++) {
                cells.appendStruct(false);
                cells.getChild(0).appendByteArray(names[at], 0, names[at].length);
                if (values[at] == null) {
                    cells.getChild(1).appendNull();
                } else {
                    cells.getChild(1).appendByteArray(values[at], 0, values[at].length);
                }
            }
        }
        return cells;
    }
}
