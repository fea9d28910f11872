"""A container component for Kubeflow Pipelines: a job file becomes a dataset.

Compile it, or import it into a pipeline of your own.
"""

from kfp import dsl

IMAGE = "registry.example/recordmill:0.1.0"
# The facts are what --json prints. Their `output` is where the dataset lies, which the
# artifact must say, as its own place is another one.
SCRIPT = """\
set -e
mkdir -p "$(dirname "$2")" "$(dirname "$3")"
recordmill run "$0" ${1:+--set "$1"} --json > "$2"
python -c 'import json, sys; print(json.load(open(sys.argv[1]))["output"], end="")' "$2" > "$3"
"""


@dsl.container_component
def recordmill(
    job_file: str,
    settings: str,
    facts: dsl.OutputPath(str),
    output: dsl.OutputPath(str),
):
    """Runs a job file; does nothing if nothing has changed.

    Args:
      job_file: path or URL of the job file.
      settings: a value for a parameter of it, like date=2026-11-20; "" if it has none.
      facts: rows, splits, version and fingerprint of the dataset, as JSON.
      output: folder of the dataset.
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["sh", "-c", SCRIPT],
        args=[job_file, settings, facts, output],
    )


@dsl.pipeline(name="recordmill")
def nightly(
    job_file: str = "gs://example-bucket/jobs/events.yaml",
    settings: str = "date=2026-11-20",
) -> str:
    """Makes a dataset; its folder goes to the next component."""
    made = recordmill(job_file=job_file, settings=settings)
    made.set_cpu_limit("4").set_memory_limit("4G").set_retry(3)
    # recordmill knows itself whether there is something to do.
    made.set_caching_options(False)
    return made.outputs["output"]
