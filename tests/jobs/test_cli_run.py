"""`recordmill run JOB.yaml`: the same dataset as `convert`, the same exit statuses."""

from __future__ import annotations

import json
import shlex
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    manifest_of,
    python,
    recordmill,
    states,
)

JOB = """\
source: csv
inputs: raw/*.csv
output: ../sets/{{ name }}
name: "{{ name }}"
splits: {train: 0.8, test: 0.2}
shards: "{{ shards }}"
seed: 3
params: {name: iris, shards: 2}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs"
    (folder / "raw").mkdir(parents=True)
    shutil.copy2(IRIS, folder / "raw")
    (folder / "iris.yaml").write_text(JOB)
    return folder / "iris.yaml"


def run(job: Path, *options: Argument) -> Ran:
    ran = recordmill("run", job, *options)
    assert ran.status == 0, ran.err
    return ran


def test_same_dataset_as_convert(job: Path, tmp_path: Path) -> None:
    ran = run(job)
    assert "iris 1.0.0: 150 records in 4 shards" in ran.err
    assert_whole(tmp_path / "sets" / "iris")
    options = ["--split", "train=0.8", "--split", "test=0.2", "--shards", "2"]
    fresh = tmp_path / "fresh" / "iris"
    convert("csv", job.parent / "raw", fresh, *options, "--seed", "3")
    assert contents(tmp_path / "sets" / "iris") == contents(fresh)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("source: images\ninputs: {samples}/images\nimages: {{feature_names: tutorial}}\ncompression: gzip\nreaders: 2", ["images", "images", "--feature-names", "tutorial", "--compression", "gzip", "--readers", "2"]),
        ("source: cifar\ninputs: ['{samples}/cifar']\ncifar: {{variant: cifar10}}\nshuffle: false\nshard_size: 100kB\nexchange: scratch", ["cifar", "cifar", "--variant", "cifar10", "--no-shuffle", "--shard-size", "100kB"]),
        ("source: csv\ninputs: {samples}/iris\nversion: 2.0.0\nsplits: {{a: 1/3, b: 2/3}}\nsplit_by: species\nmax_rejects: 1%", ["csv", "iris", "--dataset-version", "2.0.0", "--split", "a=1/3", "--split", "b=2/3", "--split-by", "species", "--max-rejects", "1%"]),
    ],
)  # fmt: skip
def test_every_field_means_what_the_option_means(
    tmp_path: Path, text: str, options: list[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"{text.format(samples=SAMPLES)}\noutput: one/data\n")
    run(file)
    source, inputs, *more = options
    convert(source, SAMPLES / inputs, tmp_path / "two" / "data", *more)
    assert contents(tmp_path / "one" / "data") == contents(tmp_path / "two" / "data")


def test_schema_of_a_file(job: Path, tmp_path: Path) -> None:
    """Inline or in a file of its own, it is the schema of `convert --schema`."""
    features = "features:\n  species: string\n  sepal_length_cm: float32\n"
    (job.parent / "features.yaml").write_text(features)
    indented = features.replace("\n", "\n  ").rstrip()
    job.write_text(JOB + f"schema:\n  {indented}\nexpect_schema: features.yaml\n")
    run(job)
    job.write_text(JOB + "schema: features.yaml\n")
    assert "already exists; nothing to do" in run(job).err
    output = tmp_path / "sets" / "iris"
    names = [feature["name"] for feature in manifest_of(output)["features"]]
    assert sorted(names) == ["sepal_length_cm", "species"]
    job.write_text(JOB + "expect_schema: ../sets/iris\n")
    ran = recordmill("run", job, "--output", tmp_path / "other")
    assert ran.status == 65
    assert "sepal_width_cm" in ran.err


def test_unchanged(job: Path, tmp_path: Path) -> None:
    run(job)
    before = states(tmp_path)
    ran = run(job)
    told, remedy = ran.err.splitlines()
    dataset = tmp_path / "sets" / "iris"
    assert told == f"{dataset}: this dataset already exists; nothing to do"
    assert states(tmp_path) == before
    command = shlex.split(remedy.partition("recordmill ")[2])
    assert recordmill(*command).status == 0
    shard = next(dataset.glob("*.tfrecord*"))
    shard.write_bytes(bytes(1) + shard.read_bytes()[1:])
    assert "nothing to do" in run(job).err  # the size is right
    assert recordmill(*command).status == 1


def test_parameters(job: Path, tmp_path: Path) -> None:
    ran = run(job, "--set", "name=flowers", "--set", "shards=3", "--json")
    facts = json.loads(ran.out)
    assert ran.err == ""
    assert (facts["status"], facts["name"], facts["shards"]) == ("done", "flowers", 6)
    assert facts["output"] == f"{tmp_path}/sets/flowers"


def test_today(tmp_path: Path) -> None:
    for day in (datetime.now(UTC).date().isoformat(), "2026-01-31"):
        (tmp_path / "raw" / day).mkdir(parents=True)
        (tmp_path / "raw" / day / "in.csv").write_text(f"day\n{day}\n")
    file = tmp_path / "job.yaml"
    file.write_text("source: csv\ninputs: raw/{{ date }}\noutput: out/{{ date }}\n")
    run(file)
    run(file, "--set", "date=2026-01-31")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.name for path in (tmp_path / "raw").iterdir()
    )


def test_what_the_command_line_says_instead(job: Path, tmp_path: Path) -> None:
    job.write_text(JOB + "workers: 1\nbeam: --runner=NoSuchRunner\n")
    options: list[Argument] = ["--output", tmp_path / "other", "--workers", 2]
    run(job, *options, "--", "--runner=DirectRunner")
    facts = json.loads((tmp_path / "other" / "run.json").read_bytes())
    assert facts["runner"] == "embedded (2 workers)"
    assert manifest_of(tmp_path / "other")["name"] == "iris"  # as the file says


def test_every_option_replaces_what_the_file_says(job: Path, tmp_path: Path) -> None:
    """The file is for every night; an option is for this one."""
    with (job.parent / "raw" / "iris.csv").open("a") as file:
        file.write("5.1,3.5\n")
    assert recordmill("run", job).status == 65
    options: list[Argument] = ["--max-rejects", 5, "--split", "all=1", "--no-shuffle"]
    options += ["--shards", 1, "--dataset-version", "2.0.0", "--overwrite"]
    assert "1 rejected" in recordmill("plan", job, *options).out
    ran = run(job, *options)
    assert "iris 2.0.0: 150 records in 1 shard" in ran.err
    raw, same = job.parent / "raw", tmp_path / "same" / "iris"
    convert("csv", raw, same, *options, "--seed", 3)
    assert contents(tmp_path / "sets" / "iris") == contents(same)


def test_an_option_of_run_that_is_wrong(job: Path) -> None:
    ran = recordmill("run", job, "--split", "train=2", "--append", "--overwrite")
    assert ran.status == 2
    assert "--split: train: " in ran.err
    assert "--append: adds to the dataset" in ran.err


def test_beam_options_of_the_file(job: Path, tmp_path: Path) -> None:
    job.write_text(JOB + "beam: [--runner=DirectRunner, --direct_num_workers=1]\n")
    run(job)
    facts = json.loads((tmp_path / "sets" / "iris" / "run.json").read_bytes())
    assert facts["runner"] == "embedded (1 workers)"
    job.write_text(JOB + "beam: --no_such_option=1\n")
    ran = recordmill("run", job, "--output", tmp_path / "other")
    assert ran.status == 2
    assert "Beam has no option --no_such_option" in ran.err


def test_versions_from_a_file(job: Path, tmp_path: Path) -> None:
    job.write_text(JOB.replace("seed: 3", "version: auto\nkeep: 2\nseed: '{{ seed }}'"))
    for seed in range(3):
        run(job, "--set", f"seed={seed}")
    output = tmp_path / "sets" / "iris"
    assert sorted(path.name for path in output.iterdir()) == [
        "1.0.1",
        "1.0.2",
        "latest.json",
    ]
    ran = run(job, "--set", "seed=2")
    assert "1.0.2: this dataset already exists; nothing to do" in ran.err


def test_accounts_of_a_file(job: Path, tmp_path: Path) -> None:
    """The file says where they go, the command line may say otherwise."""
    job.write_text(JOB + "metrics_file: iris.prom\nlog_format: json\n")
    ran = run(job)
    events = [json.loads(line)["event"] for line in ran.err.splitlines()]
    assert events == ["input_understood", "run_started", "run_done"]
    assert "recordmill_rows_read" in (job.parent / "iris.prom").read_text()
    other = tmp_path / "other.prom"
    ran = run(job, "--log-format", "text", "--metrics-file", other)
    assert " INFO run_unchanged " in ran.err
    assert 'status="unchanged"' in other.read_text()


def test_accounts_of_a_job_that_cannot_be_read(job: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.prom"
    options: list[Argument] = ["--metrics-file", file, "--log-format", "json"]
    run(job, *options)
    job.write_text("sauce: csv\n")
    ran = recordmill("run", job, *options)
    assert (ran.status, ran.out) == (2, "")
    failed = json.loads(ran.err)
    assert failed["event"] == "run_failed"
    assert "did you mean source?" in failed["message"]
    assert 'recordmill_last_run_success{dataset="iris"} 0' in file.read_text()
    assert 'last_success_timestamp_seconds{dataset="iris"}' in file.read_text()


@pytest.mark.parametrize(
    ("text", "options", "status", "message"),
    [
        (JOB, ["--set", "nmae=x"], 2, "is not used in the file; did you mean name?"),
        (JOB, ["--set", "name"], 2, "--set: expected KEY=VALUE, found 'name'"),
        (JOB + "colour: red\n", [], 2, "line 9: colour: unknown field"),
        (JOB.replace("3", "{{ n }}"), [], 2, "a value that begins with {{ needs"),
        (JOB + "seed: 4\n", [], 2, "line 9: 'seed' is given twice, first on line 7"),
        (JOB + "storage: {input: {key: abc}}\n", [], 2, "looks like a secret"),
        (JOB + "schema: no.yaml\n", [], 65, "no.yaml: cannot be read"),
        (JOB.replace("raw", "row"), [], 65, "no file matches"),
        (JOB + "scratch: gs://b/runs\n", [], 2, "expected a local folder"),
        (JOB, ["--workers", "-1"], 2, "-1 is not in the range"),
    ],
)
def test_refused(
    job: Path, text: str, options: list[str], status: int, message: str
) -> None:
    job.write_text(text)
    before = contents(job.parent.parent)
    for name in ("run", "plan"):
        ran = recordmill(name, job, *options)
        assert (ran.status, ran.out) == (status, ""), name
        assert message in ran.err
    assert contents(job.parent.parent) == before


def test_no_job_file(tmp_path: Path) -> None:
    ran = recordmill("run", tmp_path / "job.yaml")
    assert ran.status == 65
    assert "job.yaml: cannot be read: " in ran.err
    assert recordmill("run").status == 2


def test_a_job_file_may_lie_in_a_store(job: Path, tmp_path: Path) -> None:
    code = (
        "import sys, fsspec\n"
        "fs = fsspec.filesystem('memory')\n"
        "fs.pipe('/jobs/iris.yaml', open(sys.argv[1], 'rb').read())\n"
        "fs.pipe('/jobs/raw/iris.csv', open(sys.argv[2], 'rb').read())\n"
        "from recordmill.beam_jobs.cli.main import run\n"
        "sys.exit(run(['run', 'memory://jobs/iris.yaml', '--output', sys.argv[3]]))"
    )
    ran = python(code, job, IRIS, tmp_path / "out")
    assert ran.status == 0, ran.err
    assert manifest_of(tmp_path / "out")["rows_read"] == 150


def test_job_schema_is_printed() -> None:
    ran = recordmill("run", "--job-schema")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out)["title"] == "recordmill job file"
