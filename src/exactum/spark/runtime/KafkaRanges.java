package exactum;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;

/**
 * What one task reads: a range of a partition, or of each of several, which one MovingConsumer reads at the same time.
 *
 * <p>Spark makes a task of each range, and reads one range after the other where tasks are put together. In a micro-batch of
 * few records each range costs some milliseconds of waiting, whatever is in it.
 */
final class KafkaRanges implements InputPartition {
    private static final long serialVersionUID = 1;

    /** Where Spark logs in by delegation tokens, it alone knows when they change (KafkaTokenUtil.scala). */
    private static final String TOKENS = "spark.kafka.clusters.";

    private static final String KEPT = "spark.kafka.consumer.cache.capacity";
    private static final int KEPT_DEFAULT = 64;

    /** As Spark has planned them. */
    final KafkaBatchInputPartition[] ranges;
    /** Whether a MovingConsumer reads them. */
    final boolean areMoving;

    private final String[] preferredLocations;

    private KafkaRanges(List<InputPartition> ranges, String[] preferredLocations, boolean areMoving) {
        this.ranges = ranges.toArray(new KafkaBatchInputPartition[0]);
        this.preferredLocations = preferredLocations;
        this.areMoving = areMoving;
    }

    /** Of one that Spark has planned, or of ours. */
    static KafkaRanges of(InputPartition planned) {
        return planned instanceof KafkaRanges
                ? (KafkaRanges) planned
                : new KafkaRanges(List.of(planned), planned.preferredLocations(), false);
    }

    @Override
    public String[] preferredLocations() {
        return preferredLocations;
    }

    static boolean canMove() {
        return SparkEnv.get().conf().getAllWithPrefix(TOKENS).length == 0;
    }

    /**
     * On the driver: the ranges that Spark has planned for a micro-batch, in as many tasks as {@code gathered} says, which may
     * be null. More partitions than Spark keeps consumers for are read by consumers that move in any case.
     */
    static InputPartition[] planned(InputPartition[] planned, Gathered gathered) {
        if (!canMove()) {
            return planned;
        }
        long partitions = Arrays.stream(planned).map(range -> offsets(range).topicPartition()).distinct().count();
        // Some partitions are in several ranges where the user has asked for more tasks (minPartitions).
        int tasks = gathered == null || partitions < planned.length ? 0 : gathered.tasks(planned);
        if (tasks == 0 && partitions <= SparkEnv.get().conf().getInt(KEPT, KEPT_DEFAULT)) {
            return planned;
        }
        return tasks == 0
                ? Arrays.stream(planned)
                        .map(range -> new KafkaRanges(List.of(range), range.preferredLocations(), true))
                        .toArray(InputPartition[]::new)
                : together(planned, tasks);
    }

    private static InputPartition[] together(InputPartition[] planned, int tasks) {
        // Spark spreads the partitions over the executors; so many tasks go to each in turn.
        String[] executors = Arrays.stream(planned)
                .flatMap(range -> Arrays.stream(range.preferredLocations()))
                .sorted()
                .distinct()
                .toArray(String[]::new);
        InputPartition[] made = new InputPartition[tasks];
        for (int task = 0; task < tasks; task++) {
            List<InputPartition> own = Arrays.asList(planned)
                    .subList(task * planned.length / tasks, (task + 1) * planned.length / tasks);
            int place = executors.length == 0 ? 0 : task % executors.length;
            made[task] = new KafkaRanges(own, Arrays.copyOfRange(executors, place, Math.min(place + 1, executors.length)), true);
        }
        return made;
    }

    private static KafkaOffsetRange offsets(InputPartition range) {
        return ((KafkaBatchInputPartition) range).offsetRange();
    }

    /** In how many tasks a micro-batch is read whose rows cost nothing to compute (small_epoch.py, which gives the numbers). */
    static final class Gathered {
        private final long rowsMax, middleRowsMax;
        private final int perTask, largePerSlot;
        private final double shareMax;

        Gathered(long rowsMax, int perTask, long middleRowsMax, int largePerSlot, double shareMax) {
            this.rowsMax = rowsMax;
            this.perTask = perTask;
            this.middleRowsMax = middleRowsMax;
            this.largePerSlot = largePerSlot;
            this.shareMax = shareMax;
        }

        /** 0: as Spark plans it. */
        private int tasks(InputPartition[] ranges) {
            long rows = Arrays.stream(ranges).mapToLong(range -> offsets(range).size()).sum();
            long most = Arrays.stream(ranges).mapToLong(range -> offsets(range).size()).max().orElse(0);
            if (rows > rowsMax && most * ranges.length > shareMax * rows) {
                return 0;
            }
            int worth = SparkContext.getOrCreate().defaultParallelism();
            if (rows > middleRowsMax) {
                worth *= largePerSlot;
            } else if (rows <= rowsMax) {
                worth = Math.min(-Math.floorDiv(-ranges.length, perTask), worth);
            }
            return worth < ranges.length ? worth : 0;
        }
    }
}
