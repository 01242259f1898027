package exactum;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.python.MapInArrowExec;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.types.Metadata;

/**
 * Which ranges of which partitions a micro-batch is, where it is no more than chosen columns of Kafka records, and at
 * most one function of Arrow batches over them: for Python workers that read them by themselves.
 *
 * <p>Nothing is read here, and nothing of Spark's plan is run. What is not known node by node is refused with a reason.
 */
public final class KafkaRanges {
    /** Key, value, topic, partition and offset, as KafkaRecords numbers them. */
    private static final int COLUMNS_READ = 5;

    private static final int MAP_ARROW_ITER = 207;

    private final String why;
    private final MicroBatchScanExec scan;
    private final byte[] function;
    private final String told;

    private KafkaRanges(String why, MicroBatchScanExec scan, byte[] function, String told) {
        this.why = why;
        this.scan = scan;
        this.function = function;
        this.told = told;
    }

    /** Of the rows of {@code frame}, in the micro-batch that {@code execution} reads. */
    public static KafkaRanges of(Dataset<?> frame, QueryExecution execution) {
        LogicalPlan handed = frame.queryExecution().analyzed();
        while (handed instanceof SubqueryAlias) {
            handed = ((SubqueryAlias) handed).child();
        }
        // The very rows that Spark has handed out for this micro-batch, and not those of another one.
        if (!(handed instanceof LogicalRDD) || ((LogicalRDD) handed).rdd() != execution.toRdd()) {
            return refused("the sink is given more than the query's rows as they are");
        }
        SparkPlan plan = execution.executedPlan();
        PythonFunction function = null;
        if (plan instanceof MapInArrowExec) {
            MapInArrowExec map = (MapInArrowExec) plan;
            PythonUDF udf = map.func() instanceof PythonUDF ? (PythonUDF) map.func() : null;
            if (udf == null || udf.evalType() != MAP_ARROW_ITER || map.isBarrier() || map.profile().isDefined()) {
                return refused("its function runs in a way of its own");
            }
            function = udf.func();
            if (!function.broadcastVars().isEmpty()) {
                return refused("its function refers to broadcast variables, or is larger than 1 MiB");
            }
            plan = map.child();
        }
        Map<ExprId, PackedBatches.Choice> chosen = new HashMap<>();
        MicroBatchScanExec scan = PackedBatches.scanBelow(plan, chosen);
        if (scan == null) {
            return refused("the query does more than to choose columns and to call one function of Arrow batches");
        }
        List<String> lines = new ArrayList<>();
        String refusal = columns(plan, chosen, lines);
        byte[] command = function == null ? null : bytes(function);
        lines.add(0, command == null ? "" : Integer.toHexString(Arrays.hashCode(command)) + "-" + command.length);
        lines.add(0, Integer.toString(lines.size() - 1));
        if (refusal == null) {
            refusal = ranges(scan, lines);
        }
        return refusal == null
                ? new KafkaRanges("", scan, command, String.join("\n", lines))
                : refused(refusal);
    }

    /** Why the workers cannot read it; empty where they can. */
    public String why() {
        return why;
    }

    /**
     * Lines: the number of columns; what tells the function from others, or nothing; for each column its number and its
     * name; the isolation level; how long a poll may take, in milliseconds; and for each range its partition, its first
     * offset, the offset before which it ends, and the topic.
     */
    public String told() {
        return told;
    }

    /** The function and its return type, pickled as PySpark does; null where there is none. */
    public byte[] function() {
        return function;
    }

    /** Tell Spark how many records the micro-batch has had: its progress reports say so. */
    public void setRowsRead(long count) {
        scan.metrics().apply("numOutputRows").set(count);
    }

    private static KafkaRanges refused(String why) {
        return new KafkaRanges(why, null, null, "");
    }

    /** Adds a line for each column, or tells why not. */
    private static String columns(SparkPlan plan, Map<ExprId, PackedBatches.Choice> chosen, List<String> lines) {
        Set<String> names = new HashSet<>();
        for (Attribute column : PackedBatches.list(plan.output())) {
            PackedBatches.Choice choice = chosen.get(column.exprId());
            if (choice == null || choice.text || choice.source >= COLUMNS_READ) {
                return "it reads other columns than key, value, topic, partition and offset";
            }
            if (column.name().indexOf('\n') >= 0
                    || !column.metadata().equals(Metadata.empty())
                    || !names.add(column.name().toLowerCase(Locale.ROOT))) {
                return "two of its columns have one name, or a column has metadata";
            }
            lines.add(choice.source + " " + column.name());
        }
        return lines.isEmpty() ? "it reads no column" : null;
    }

    /** Adds the lines about what is read, or tells why not. */
    private static String ranges(MicroBatchScanExec scan, List<String> lines) {
        int before = lines.size();
        KafkaBatchInputPartition first = null;
        for (InputPartition planned : PackedBatches.list(scan.inputPartitions())) {
            KafkaBatchInputPartition range = (KafkaBatchInputPartition) planned;
            first = first == null ? range : first;
            if (!range.failOnDataLoss()) {
                return "failOnDataLoss=false is Spark's to grant";
            }
            if (range.includeHeaders()) {
                return "headers are read by Spark alone";
            }
            if (!range.executorKafkaParams().equals(first.executorKafkaParams())
                    || range.pollTimeoutMs() != first.pollTimeoutMs()
                    || range.offsetRange().fromOffset() < 0
                    || range.offsetRange().untilOffset() < 0) {
                return "its partitions are not read alike";
            }
            lines.add(range.offsetRange().partition() + " " + range.offsetRange().fromOffset() + " "
                    + range.offsetRange().untilOffset() + " " + range.offsetRange().topic());
        }
        Object isolation = first == null ? "" : first.executorKafkaParams().get("isolation.level");
        lines.add(before, Long.toString(first == null ? 0 : first.pollTimeoutMs()));
        lines.add(before, isolation == null ? "read_uncommitted" : isolation.toString());
        return null;
    }

    private static byte[] bytes(PythonFunction function) {
        List<Object> boxed = PackedBatches.list(function.command());
        byte[] bytes = new byte[boxed.size()];
        for (int place = 0; place < bytes.length; place++) {
            bytes[place] = (Byte) boxed.get(place);
        }
        return bytes;
    }
}
