package exactum;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.package$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.ContinuousStream;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Spark's own Kafka source, whose micro-batches are read in batches of columns instead of row by row, and end at a stop.
 *
 * <p>All else that a driver does is Spark's: options, offsets, limits, partitions, the checkpoint. Executors read the
 * same ranges through the same cached consumers with the same checks. So a checkpoint of one goes on with the other.
 * Batch reads and other triggers than micro-batches are left to Spark's source as it is.
 *
 * <p>With the option exactum.rows executors read by Spark's own reader, and need no class of ours. That much works with
 * every Spark from 4.0 on; what reads in columns is loaded only where it is used.
 */
public final class ColumnarKafka implements TableProvider {
    /** Among the settings of Kafka's consumer, which passes them on: see withNullTimes. */
    static final String NULL_TIMES = "exactum.null.times";
    static final String ROWS = "exactum.rows";
    /** As Spark writes offsets: the first of each partition that is not read. */
    static final String STOP = "exactum.stop.offsets";

    /** Its Python functions wait for ever where all columns of a source reach them as they are: SPARK-58241. */
    private static final String HANGS_WITH_COLUMNS = "4.2.0";
    private static final String COLUMNS_INTO_PYTHON = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled";

    private final KafkaSourceProvider spark = new KafkaSourceProvider();

    /**
     * A source's plan, read so that a timestamp which Spark cannot hold is null. Null where more than the source stands in
     * the plan, which may look at a null timestamp and take it for a time that is not known.
     */
    public static LogicalPlan withNullTimes(LogicalPlan plan) {
        if (!(plan instanceof StreamingRelationV2)) {
            return null;
        }
        StreamingRelationV2 it = (StreamingRelationV2) plan;
        Map<String, String> options = new HashMap<>(it.extraOptions().asCaseSensitiveMap());
        options.put("kafka." + NULL_TIMES, "true");
        return it.copy(it.source(), it.sourceName(), it.table(), new CaseInsensitiveStringMap(options), it.output(),
                it.catalog(), it.identifier(), it.v1Relation(), it.sourceIdentifyingName());
    }

    /**
     * Micro-batches of one of our streams go into few tasks from now on, as KafkaRanges.Gathered says. False where they do
     * not: it does not read in columns.
     */
    public static boolean gather(
            Object stream, int rowsMax, int perTask, int middleRowsMax, int largePerSlot, double shareMax) {
        return ((ColumnarKafkaStream) stream)
                .gather(new KafkaRanges.Gathered(rowsMax, perTask, middleRowsMax, largePerSlot, shareMax));
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return spark.inferSchema(options);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
        return new ColumnarTable((SupportsRead) spark.getTable(options));
    }

    /** Spark's table, under its own name. */
    private static final class ColumnarTable implements SupportsRead {
        private final SupportsRead table;

        ColumnarTable(SupportsRead table) {
            this.table = table;
        }

        @Override
        public String name() {
            return table.name();
        }

        @Override
        @SuppressWarnings("deprecation") // what Spark's table implements
        public StructType schema() {
            return table.schema();
        }

        @Override
        public Set<TableCapability> capabilities() {
            return table.capabilities();
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new ColumnarScan(table.newScanBuilder(options).build(), options);
        }
    }

    private static final class ColumnarScan implements Scan {
        private final Scan scan;
        private final boolean inColumns;
        private final StopOffsets stop;
        private ColumnarKafkaStream stream;

        ColumnarScan(Scan scan, CaseInsensitiveStringMap options) {
            this.scan = scan;
            inColumns = !options.getBoolean(ROWS, false);
            stop = options.containsKey(STOP) ? new StopOffsets(options.get(STOP)) : null;
        }

        @Override
        public StructType readSchema() {
            return scan.readSchema();
        }

        @Override
        public String description() {
            return scan.description();
        }

        @Override
        public CustomMetric[] supportedCustomMetrics() { // of Spark's reader, where it reads rows
            return scan.supportedCustomMetrics();
        }

        @Override
        public ColumnarSupportMode columnarSupportMode() {
            return stream != null && inColumns ? ColumnarSupportMode.SUPPORTED : ColumnarSupportMode.UNSUPPORTED;
        }

        @Override
        public Batch toBatch() {
            return scan.toBatch();
        }

        @Override
        public ContinuousStream toContinuousStream(String checkpoint) {
            return scan.toContinuousStream(checkpoint);
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            if (inColumns && package$.MODULE$.SPARK_VERSION().equals(HANGS_WITH_COLUMNS)) {
                SQLConf.get().setConfString(COLUMNS_INTO_PYTHON, "false"); // in the query's own session
            }
            stream = new ColumnarKafkaStream(scan.toMicroBatchStream(checkpoint), inColumns, stop);
            return stream;
        }
    }

    /** Goes to the executors. */
    static final class ColumnarReaderFactory implements PartitionReaderFactory {
        private static final long serialVersionUID = 1;

        private final PartitionReaderFactory rows;

        ColumnarReaderFactory(PartitionReaderFactory rows) {
            this.rows = rows;
        }

        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            return rows.createReader(partition);
        }

        @Override
        public boolean supportColumnarReads(InputPartition partition) {
            return true;
        }

        @Override
        public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
            return new ColumnarKafkaReader(KafkaRanges.of(partition));
        }
    }
}
