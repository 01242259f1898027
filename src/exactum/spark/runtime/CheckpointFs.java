package exactum;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's own local file system, for {@code fs.AbstractFileSystem.file.impl}, but for four things.
 *
 * <p>Hadoop starts a process each time for {@code chmod} (RawLocalFileSystem.setPermission, without libhadoop) and
 * {@code readlink} (FileUtil.readLink); Spark's FileContextBasedCheckpointFileManager asks for both several times for
 * each file. And Hadoop never fsyncs: here a file that gets its name by a rename, as every file of a checkpoint does,
 * is on the disk before it has the name, and the name is on the disk when the rename returns. And where a rename is not
 * to replace anything, Hadoop looks and then renames: of two drivers that plan one micro-batch both would succeed.
 *
 * <p>The layers are those of Hadoop's LocalFs: a ChecksumFs, which hides, moves and deletes checksum files with their
 * files, over a raw file system.
 */
public final class CheckpointFs extends ChecksumFs {
    private static final String FSYNC = "spark.exactum.checkpoint.fsync";

    private final boolean fsync;

    /** Called by Hadoop, with these arguments. */
    public CheckpointFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new Raw(conf));
        fsync = conf.getBoolean(FSYNC, true);
    }

    @Override
    public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
        File source = file(from), folder = file(to.getParent());
        if (fsync && source.isFile()) {
            if (to.getName().endsWith(".zip")) {
                Disk.fsyncCopies(folder);
            }
            File checksums = file(getChecksumFile(from));
            Disk.fsync(checksums.exists() ? List.of(source, checksums) : List.of(source));
        }
        if (overwrite || !file(to).exists()) { // else a crash leaves the new file with the checksums of an old one
            Files.deleteIfExists(file(getChecksumFile(to)).toPath());
        }
        if (!overwrite && source.isFile() && link(source, file(to))) {
            File checksums = file(getChecksumFile(from));
            if (checksums.exists()) {
                Files.move(checksums.toPath(), file(getChecksumFile(to)).toPath(), StandardCopyOption.REPLACE_EXISTING);
            }
            Files.deleteIfExists(source.toPath());
        } else {
            super.renameInternal(from, to, overwrite);
        }
        if (fsync) {
            Disk.fsyncFolder(folder);
        }
    }

    /** A process that was killed may have renamed what is not on the disk yet: who reads it here relies on it. */
    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        File folder = file(path);
        if (fsync && folder.isDirectory() && !Disk.knows(folder)) {
            Disk.fsyncFolder(folder);
        }
        return super.listStatus(path);
    }

    /** Gives a file a second name, which only one of two can give. False: this file system has no hard links. */
    private static boolean link(File file, File name) throws IOException {
        try {
            Files.createLink(name.toPath(), file.toPath());
        } catch (java.nio.file.FileAlreadyExistsException taken) {
            if (!Files.isSameFile(file.toPath(), name.toPath())) { // NFS asks again where a reply was lost
                throw new FileAlreadyExistsException(name + " exists");
            }
        } catch (UnsupportedOperationException | FileSystemException none) {
            return false;
        }
        return true;
    }

    private static File file(Path path) {
        return new File(path.toUri().getPath());
    }

    /** fsync, several at a time: a journaling file system writes what comes together in one go. */
    private static final class Disk {
        /** Threads of our own: the interrupt with which Spark stops a query would end an fsync halfway. */
        private static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task, "exactum-fsync");
            thread.setDaemon(true);
            return thread;
        });
        /** Where Spark's RocksDB store copies tables and logs to, by another part of Hadoop, before a zip names them. */
        private static final List<String> COPIES = List.of("SSTs", "logs");
        /** By such folder, what is on the disk: name, size and time of each file. */
        private static final Map<File, Set<String>> COPIED = new ConcurrentHashMap<>();
        /** Folders that are on the disk, with all folders above them and all that was in them at the first look. */
        private static final Set<File> KNOWN = ConcurrentHashMap.newKeySet();

        static void fsync(List<File> files) throws IOException {
            CompletableFuture<?>[] all = files.stream()
                    .map(file -> CompletableFuture.runAsync(() -> force(file), THREADS))
                    .toArray(CompletableFuture<?>[]::new);
            try {
                CompletableFuture.allOf(all).join(); // which no interrupt ends
            } catch (CompletionException error) {
                if (error.getCause() instanceof UncheckedIOException failed) {
                    throw new IOException("fsync failed: " + failed.getCause().getMessage(), failed.getCause());
                }
                throw error;
            }
        }

        private static void force(File file) {
            try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
                channel.force(true);
            } catch (NoSuchFileException gone) {
                return; // an old copy, which Spark has deleted meanwhile
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        static boolean knows(File folder) {
            return KNOWN.contains(folder);
        }

        /** The names in a folder; at the first time the folders above it as well, as far as this user may read them. */
        static void fsyncFolder(File folder) throws IOException {
            List<File> folders = new ArrayList<>(List.of(folder));
            if (!KNOWN.remove(folder)) { // it is known again when this has succeeded
                boolean known = false; // one that is known may have got the folder below since
                for (File above = folder.getParentFile();
                        above != null && above.canRead() && !known;
                        above = above.getParentFile()) {
                    folders.add(above);
                    known = KNOWN.contains(above);
                }
            }
            fsync(folders);
            KNOWN.add(folder);
        }

        static void forget(File folder) {
            KNOWN.remove(folder);
        }

        /** What a snapshot of the store in this folder may name. */
        static void fsyncCopies(File store) throws IOException {
            for (String name : COPIES) {
                File folder = new File(store, name);
                File[] copies = folder.listFiles();
                if (copies == null) {
                    continue;
                }
                Set<String> before = COPIED.getOrDefault(folder, Set.of()), there = new HashSet<>();
                List<File> wanted = new ArrayList<>(List.of(folder));
                if (!COPIED.containsKey(folder)) {
                    wanted.add(store);
                }
                for (File copy : copies) {
                    String stamp = copy.getName() + " " + copy.length() + " " + copy.lastModified();
                    there.add(stamp);
                    if (!before.contains(stamp)) {
                        wanted.add(copy);
                    }
                }
                fsync(wanted);
                COPIED.put(folder, there);
            }
        }
    }

    private static final class Raw extends DelegateToFileSystem {
        Raw(Configuration conf) throws IOException, URISyntaxException {
            super(URI.create("file:///"), new LocalFiles(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1; // as of RawLocalFs
        }

        @Override
        public boolean isValidName(String path) {
            return true; // as of RawLocalFs: the operating system decides
        }
    }

    private static final class LocalFiles extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            String bits = permission.getUserAction().SYMBOL
                    + permission.getGroupAction().SYMBOL
                    + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(bits));
        }

        /** Its name reaches the disk with the first file in it. */
        @Override
        protected boolean mkOneDirWithMode(Path path, File folder, FsPermission permission) throws IOException {
            Disk.forget(folder); // it was removed since
            return super.mkOneDirWithMode(path, folder, permission);
        }

        /** Hadoop's own asks readlink about the whole URI, "file:/...", a name that no file has: it sees no link ever. */
        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            return getFileStatus(path);
        }
    }
}
