package exactum;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's own local file system, for {@code fs.AbstractFileSystem.file.impl}, but for two things that Hadoop starts a
 * process for each time: {@code chmod} (RawLocalFileSystem.setPermission, without libhadoop) and {@code readlink}
 * (FileUtil.readLink). Spark's FileContextBasedCheckpointFileManager asks for both several times for each file.
 *
 * <p>The layers are those of Hadoop's LocalFs: a ChecksumFs, which hides, moves and deletes checksum files with their
 * files, over a raw file system.
 */
public final class CheckpointFs extends ChecksumFs {
    /** Called by Hadoop, with these arguments. */
    public CheckpointFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new Raw(conf));
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

        /** Hadoop's own asks readlink about the whole URI, "file:/...", a name that no file has: it sees no link ever. */
        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            return getFileStatus(path);
        }
    }
}
