import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;

/** Writes a table with Spark in several formats, and what Spark reads of each as JSON. */
public class SparkTables {
  static final String ROWS =
      "SELECT id, cast(id * 3 AS int) AS small, id / 4.0D AS x, cast(id / 8 AS float) AS y,"
          + " cast(id * 1.25 AS decimal(10, 2)) AS price, if(id % 5 = 0, NULL, concat('gr\u00fcn ', id)) AS t,"
          + " id % 2 = 0 AS flag, cast('2026-11-27' AS date) + cast(id AS int) AS day,"
          + " timestamp_micros(1700000000123456 + id) AS at,"
          + " transform(sequence(0, id % 3), i -> i * 0.5D) AS list,"
          + " named_struct('a', id, 'b', if(id % 4 = 0, NULL, array(concat('x', id)))) AS deep,"
          + " if(id % 7 = 3, NULL, concat('k/', id % 3)) AS key, cast(id % 2 + 2025 AS int) AS year"
          + " FROM range(40)";
  static final String PLAIN =
      "SELECT id, x, t, flag, concat('say \"', id, '\", a\\\\b') AS quoted, year FROM t";

  public static void main(String[] given) {
    SparkSession spark =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.parquet.outputTimestampType", "INT96")
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config(
                "spark.sql.catalog.spark_catalog",
                "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            // Of some rows: hundreds of tasks would take half a minute.
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.databricks.delta.snapshotPartitions", "1")
            .getOrCreate();
    spark.sql(ROWS).createOrReplaceTempView("t");
    Dataset<Row> all = spark.sql("SELECT * FROM t").repartition(3);
    Dataset<Row> plain = spark.sql(PLAIN).repartition(3);
    String to = given[0] + "/";
    all.write().partitionBy("year", "key").parquet(to + "parquet");
    plain.write().option("header", "true").csv(to + "csv");
    spark.sql("SELECT * FROM t").repartition(3).write().json(to + "jsonl");
    plain.write().option("header", "true").option("compression", "gzip").csv(to + "packed");
    expect(spark.read().parquet(to + "parquet"), to + "of-parquet");
    expect(spark.read().option("header", "true").option("inferSchema", "true").csv(to + "csv"), to + "of-csv");
    expect(spark.read().option("header", "true").option("inferSchema", "true").csv(to + "packed"), to + "of-packed");
    expect(spark.read().json(to + "jsonl"), to + "of-jsonl");
    writeDelta(all.where("id < 30").coalesce(1), to + "delta", false, "year", "key");
    all.where("id >= 30").coalesce(1).write().format("delta").mode(SaveMode.Append).save(to + "delta");
    spark.sql("DELETE FROM delta.`" + to + "delta` WHERE id = 7");
    expect(spark.read().format("delta").load(to + "delta"), to + "of-delta");
    // A deleted row stays in its file, and a vector marks it.
    for (String name : new String[] {"marked", "purged"}) {
      writeDelta(plain.coalesce(1), to + name, true, "year");
      spark.sql("DELETE FROM delta.`" + to + name + "` WHERE id = 7");
    }
    spark.sql("REORG TABLE delta.`" + to + "purged` APPLY (PURGE)");
    expect(spark.read().format("delta").load(to + "purged"), to + "of-purged");
    spark.stop();
  }

  static void writeDelta(Dataset<Row> rows, String to, boolean marks, String... folders) {
    rows.write()
        .format("delta")
        .partitionBy(folders)
        .option("delta.enableDeletionVectors", marks)
        .save(to);
  }

  static void expect(Dataset<Row> read, String to) {
    read.coalesce(1)
        .write()
        .mode(SaveMode.Overwrite)
        .option("ignoreNullFields", "false")
        .option("timestampFormat", "yyyy-MM-dd HH:mm:ss.SSSSSS")
        .json(to);
  }
}
