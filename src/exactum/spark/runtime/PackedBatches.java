package exactum;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Micro-batches that are no more than chosen columns of Kafka records, packed: one array of bytes for many records, with
 * the buffers of their Arrow arrays, for a Python task that unpacks them (packed_records.py).
 *
 * <p>Spark's own way makes a row of each record, and Arrow of the rows: that is three copies of each byte, and here
 * they are two.
 */
public final class PackedBatches {
    /** So few records of one partition, of so many bytes, go with those of the next one: an array costs Python a millisecond. */
    private static final int FEW = 1_000, SMALL = 256 << 10;

    private PackedBatches() {}

    /** A packed micro-batch, each array of many records, and how it is unpacked. */
    private static final class Packed {
        final JavaRDD<byte[]> records;
        final String layout;

        Packed(JavaRDD<byte[]> records, String layout) {
            this.records = records;
            this.layout = layout;
        }
    }

    /**
     * How the rows of {@code frame} are unpacked: a line of numbers, the columns that are packed, as KafkaRecords numbers
     * them. Then a line for each column of the frame: the number, "text" or "as is", and the name, with a blank between.
     * Null where they are not packed.
     */
    public static String layout(Dataset<?> frame, QueryExecution execution) {
        Packed packed = of(frame, execution);
        return packed == null ? null : packed.layout;
    }

    /**
     * What the tasks of {@code function} have returned that are given the rows of {@code frame}, packed by this layout,
     * in so many tasks, or where that is 0 in those that Spark plans: UTF-8 texts without a line's end, in as many lines.
     * Null where the rows are not packed, or by another layout. The tasks find {@code order} in the local property. All
     * this is one call for a Python driver, in which each call costs a way over a socket and back.
     */
    public static String written(
            Dataset<?> frame,
            QueryExecution execution,
            String layout,
            PythonFunction function,
            int tasks,
            String property,
            String order)
            throws Exception {
        Packed packed = of(frame, execution);
        if (packed == null || !packed.layout.equals(layout)) {
            return null;
        }
        frame.sparkSession().sparkContext().setLocalProperty(property, order);
        JavaRDD<byte[]> given = tasks == 0 ? packed.records : packed.records.coalesce(tasks);
        // The one action whose closure Spark need not search (jvm/frames.py).
        List<byte[]> texts =
                new PythonRDD(given.rdd(), function, false, false).asJavaRDD().collectAsync().get();
        List<String> lines = new ArrayList<>();
        for (byte[] text : texts) {
            lines.add(new String(text, StandardCharsets.UTF_8));
        }
        return String.join("\n", lines);
    }

    /**
     * The rows of {@code frame}, packed; or null where they are not just columns of the records that the micro-batch
     * {@code execution} reads from one ColumnarKafka.
     */
    private static Packed of(Dataset<?> frame, QueryExecution execution) {
        Map<ExprId, Choice> chosen = new HashMap<>();
        MicroBatchScanExec scan = scanBelow(execution.executedPlan(), chosen);
        LogicalPlan plan = frame.queryExecution().analyzed();
        if (scan == null || !resolve(plan, execution, chosen)) {
            return null;
        }
        if (plan.output().isEmpty()) { // without columns, who is given them could not count the records
            return null;
        }
        Set<Integer> sources = new TreeSet<>();
        Set<String> names = new HashSet<>();
        List<String> lines = new ArrayList<>();
        for (Attribute column : list(plan.output())) {
            Choice choice = chosen.get(column.exprId());
            if (choice == null
                    || column.name().indexOf('\n') >= 0
                    || !column.metadata().equals(Metadata.empty()) // which Spark shows in Arrow's schema
                    || !names.add(column.name().toLowerCase(Locale.ROOT))) {
                return null;
            }
            sources.add(choice.source);
            lines.add(choice.source + (choice.text ? " text " : " as-is ") + column.name());
        }
        int[] packed = sources.stream().mapToInt(Integer::intValue).toArray();
        StringBuilder layout = new StringBuilder();
        for (int source : packed) {
            layout.append(source).append(' ');
        }
        JavaRDD<byte[]> records = scan.executeColumnar().toJavaRDD().mapPartitions(batches -> packed(batches, packed));
        return new Packed(records, layout + "\n" + String.join("\n", lines));
    }

    private static Iterator<byte[]> packed(Iterator<ColumnarBatch> batches, int[] columns) {
        boolean ofAnyPartition = Arrays.stream(columns).allMatch(KafkaRecords::isOfAnyPartition);
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return batches.hasNext();
            }

            @Override
            public byte[] next() {
                KafkaRecords records = KafkaRecords.of(batches.next());
                while (ofAnyPartition && records.count() < FEW && records.bytes() < SMALL && batches.hasNext()) {
                    records.addAll(KafkaRecords.of(batches.next()));
                }
                return RecordPacker.packed(records, columns);
            }
        };
    }

    /** One column of the records, as it is or bytes taken for text. */
    static final class Choice {
        final int source;
        final boolean text;

        Choice(int source, boolean text) {
            this.source = source;
            this.text = text;
        }
    }

    /** The scan that a physical plan only chooses columns of, whose choices are added; or null. */
    static MicroBatchScanExec scanBelow(SparkPlan plan, Map<ExprId, Choice> chosen) {
        if (plan instanceof WholeStageCodegenExec || plan instanceof InputAdapter || plan instanceof ColumnarToRowExec) {
            return scanBelow(plan.children().head(), chosen);
        }
        if (plan instanceof ProjectExec) {
            MicroBatchScanExec scan = scanBelow(plan.children().head(), chosen);
            return scan != null && choose(((ProjectExec) plan).projectList(), chosen) ? scan : null;
        }
        if (plan instanceof MicroBatchScanExec) {
            MicroBatchScanExec scan = (MicroBatchScanExec) plan;
            if (scan.supportsColumnar() && scan.readerFactory() instanceof ColumnarKafka.ColumnarReaderFactory) {
                int place = 0;
                for (Attribute column : list(scan.output())) {
                    chosen.put(column.exprId(), new Choice(place++, false));
                }
                return scan;
            }
        }
        return null;
    }

    /** Whether a frame's plan only chooses columns of the micro-batch, whose choices are added. */
    private static boolean resolve(LogicalPlan plan, QueryExecution execution, Map<ExprId, Choice> chosen) {
        if (plan instanceof SubqueryAlias) {
            return resolve(((SubqueryAlias) plan).child(), execution, chosen);
        }
        if (plan instanceof Project) {
            Project project = (Project) plan;
            return resolve(project.child(), execution, chosen) && choose(project.projectList(), chosen);
        }
        // The very rows that Spark has handed out for this micro-batch, and not those of another one.
        if (!(plan instanceof LogicalRDD) || ((LogicalRDD) plan).rdd() != execution.toRdd()) {
            return false;
        }
        List<Attribute> computed = list(execution.executedPlan().output());
        List<Attribute> handed = list(plan.output());
        for (int place = 0; place < handed.size(); place++) {
            chosen.put(handed.get(place).exprId(), chosen.get(computed.get(place).exprId()));
        }
        return handed.size() == computed.size();
    }

    private static boolean choose(scala.collection.immutable.Seq<NamedExpression> columns, Map<ExprId, Choice> chosen) {
        for (NamedExpression column : list(columns)) {
            if (column instanceof Alias) {
                Choice choice = choice(((Alias) column).child(), chosen);
                if (choice == null) {
                    return false;
                }
                chosen.put(column.exprId(), choice);
            } else if (!(column instanceof AttributeReference) || chosen.get(column.exprId()) == null) {
                return false;
            }
        }
        return true;
    }

    private static Choice choice(Expression expression, Map<ExprId, Choice> chosen) {
        if (expression instanceof AttributeReference) {
            return chosen.get(((AttributeReference) expression).exprId());
        }
        if (expression instanceof Cast && expression.dataType().equals(DataTypes.StringType)) {
            Expression child = ((Cast) expression).child();
            Choice bytes = child.dataType().equals(DataTypes.BinaryType) ? choice(child, chosen) : null;
            return bytes == null ? null : new Choice(bytes.source, true);
        }
        return null;
    }

    static <T> List<T> list(scala.collection.immutable.Seq<T> items) {
        return CollectionConverters.asJava(items);
    }
}
