import org.apache.beam.runners.flink.FlinkJobServerDriver;

/**
 * Beam's job server, without the 150 MB of jars that it would send along with every job.
 *
 * <p>It sends what it finds on its class path. The cluster of the tests has the same jars
 * already, and uploading them takes longer than a test's job.
 */
public class JobServer {
  public static void main(String[] arguments) throws Exception {
    System.setProperty("java.class.path", "");
    FlinkJobServerDriver.main(arguments);
  }
}
