package exactum;

import java.net.URI;
import java.util.EnumSet;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;

/**
 * Two at once give files of their own the same name, as two drivers do that plan one micro-batch. Prints how often both
 * or none of them succeeded, or the file is not the winner's. Arguments: the file system's class, a folder, how often.
 */
public final class TwoDrivers {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.AbstractFileSystem.file.impl", arguments[0]);
        conf.setBoolean("spark.exactum.checkpoint.fsync", false);
        FileContext files = FileContext.getFileContext(URI.create("file:///"), conf);
        ExecutorService drivers = Executors.newFixedThreadPool(2);
        int wrong = 0;
        for (int turn = 0; turn < Integer.parseInt(arguments[2]); turn++) {
            Path name = new Path(arguments[1], String.valueOf(turn));
            CyclicBarrier atOnce = new CyclicBarrier(2);
            Future<Boolean> a = drivers.submit(() -> names(files, name, 'a', atOnce));
            Future<Boolean> b = drivers.submit(() -> names(files, name, 'b', atOnce));
            boolean isOnes = a.get() != b.get();
            try (java.io.InputStream stream = files.open(name)) {
                wrong += isOnes && stream.read() == (a.get() ? 'a' : 'b') ? 0 : 1;
            }
        }
        drivers.shutdown();
        System.out.println(wrong);
    }

    private static boolean names(FileContext files, Path name, char driver, CyclicBarrier atOnce) throws Exception {
        Path own = new Path(name.getParent(), "." + name.getName() + driver);
        try (java.io.OutputStream stream = files.create(own, EnumSet.of(CreateFlag.CREATE))) {
            stream.write(driver);
        }
        atOnce.await();
        try {
            files.rename(own, name, Rename.NONE);
            return true;
        } catch (FileAlreadyExistsException taken) {
            return false;
        }
    }
}
