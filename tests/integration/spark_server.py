"""Beam's job server for Spark, with Spark inside: one Java process with two threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services import JAVA_OPTIONS, class_path, java, service
from store_servers import free_port, listens


@contextmanager
def spark_job_server(folder: Path) -> Iterator[str]:
    """A job server that runs jobs itself; gives its job endpoint."""
    port = free_port()
    command = [java(), *JAVA_OPTIONS, "-Xmx512m", "-Dspark.ui.enabled=false"]
    command += ["-Dspark.driver.host=127.0.0.1", f"-Dspark.local.dir={folder}/spark"]
    command += ["-cp", class_path("spark")]
    command += ["org.apache.beam.runners.spark.SparkJobServerDriver"]
    command += ["--spark-master-url=local[2]", "--job-host=127.0.0.1"]
    command += [f"--job-port={port}", "--artifact-port=0", "--expansion-port=0"]
    command += [f"--artifacts-dir={folder}/spark-artifacts"]
    with service(command, folder / "spark.log") as server:
        server.wait_for("the Spark job server", lambda: listens(port))
        yield f"127.0.0.1:{port}"
