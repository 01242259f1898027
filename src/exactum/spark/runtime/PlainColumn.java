package exactum;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column on the heap, of which nothing is to be freed: it has the values that its class says, and no others. */
abstract class PlainColumn extends ColumnVector {
    PlainColumn(DataType type) {
        super(type);
    }

    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
        return numNulls() > 0;
    }

    @Override
    public byte[] getBinary(int row) {
        throw noSuchType();
    }

    @Override
    public UTF8String getUTF8String(int row) {
        throw noSuchType();
    }

    @Override
    public int getInt(int row) {
        throw noSuchType();
    }

    @Override
    public long getLong(int row) {
        throw noSuchType();
    }

    @Override
    public float getFloat(int row) {
        throw noSuchType();
    }

    @Override
    public double getDouble(int row) {
        throw noSuchType();
    }

    @Override
    public boolean getBoolean(int row) {
        throw noSuchType();
    }

    @Override
    public byte getByte(int row) {
        throw noSuchType();
    }

    @Override
    public short getShort(int row) {
        throw noSuchType();
    }

    @Override
    public ColumnarArray getArray(int row) {
        throw noSuchType();
    }

    @Override
    public ColumnarMap getMap(int row) {
        throw noSuchType();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        throw noSuchType();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw noSuchType();
    }

    private UnsupportedOperationException noSuchType() {
        return new UnsupportedOperationException("a column of Kafka's is " + type);
    }
}
