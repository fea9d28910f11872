"""Job files: what they may say, how placeholders are filled in, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.job import JobSpec, RunOptions, Sharding
from recordmill.schemas.job_file import (
    job_schema_bytes,
    load_job,
    parse_settings,
    resolve_path,
)
from recordmill.schemas.job_options import LoadedJob
from recordmill.schemas.storage_options import StorageOptions, StorageOptionsPair
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.registry import BUILT_IN, CsvOptions, load_format

FORMATS = {name: load_format(name).options for name in BUILT_IN}
DAY = date(2026, 11, 20)
MINIMAL = "source: csv\ninputs: in.csv\noutput: out/users\n"


def load(text: str, **settings: str) -> LoadedJob:
    def read(uri: str) -> bytes:
        assert uri == "/jobs/features.yaml"
        return b"features: {age: int64}\n"

    return load_job(text.encode(), "/jobs/job.yaml", settings, DAY, read, FORMATS)


def problems(text: str, **settings: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(text, **settings)
    return str(caught.value)


def test_everything() -> None:
    loaded = load(
        """
        source: images
        inputs: [raw/a, s3://bucket/b, /c/*.jpg]
        output: ../sets/pets
        name: pets
        version: 2.0.1
        schema:
          features: {label: {classes: [no, yes]}, size: "int64[2]"}
        payload: json
        splits: {train: 0.90, val: 1/20, test: .05}
        split_by: label
        shuffle: no
        seed: 18446744073709551615
        shard_size: 100MB
        compression: gzip
        max_rejects: 0.5%
        images: {feature_names: imagenet}
        overwrite: true
        storage: {input: {anon: true, endpoint_url: http://host:9000}}
        exchange: scratch
        workers: 4
        scratch: ~/scratch
        beam: [--runner=FlinkRunner, --parallelism=8]
        metrics_file: /metrics/pets.prom
        log_format: json
        """.replace("\n        ", "\n")
    )
    job, options = loaded.job, loaded.options
    shares = {split.name: split.fraction for split in job.splits}
    assert shares == {"train": "0.90", "val": "1/20", "test": ".05"}
    assert job.declared is not None
    assert job.declared.features["label"].classes == ("no", "yes")  # not booleans
    assert job.declared.features["size"].shape == (2,)
    assert (job.name, job.version, job.payload) == ("pets", "2.0.1", "json")
    assert (job.split_by, job.shuffle, job.seed) == ("label", False, (1 << 64) - 1)
    assert job.sharding == Sharding(shard_bytes=100_000_000)
    assert (job.compression, job.max_rejects.text) == ("gzip", "0.5%")
    assert job.source_options == ImagesOptions(feature_names="imagenet")
    assert options == RunOptions(
        inputs=("/jobs/raw/a", "s3://bucket/b", "/c/*.jpg"),
        output="/sets/pets",
        scratch=str(Path("~/scratch").expanduser()),
        exchange="scratch",
        workers=4,
        overwrite=True,
        beam_args=("--runner=FlinkRunner", "--parallelism=8"),
        storage=StorageOptionsPair(
            StorageOptions.from_values(
                {"anon": True, "endpoint_url": "http://host:9000"}
            )
        ),
        metrics_file="/metrics/pets.prom",
        log_format="json",
    )
    assert options.style == "job_file"


def test_versions_and_schema_file() -> None:
    more = (
        "version: auto\nkeep: 3\nschema: features.yaml\nshards: 8\nbeam: --runner=X\n"
    )
    loaded = load(MINIMAL + more)
    assert (loaded.options.auto_version, loaded.options.keep) == (True, 3)
    assert loaded.job.version == "1.0.0"
    assert loaded.job.declared is not None
    assert list(loaded.job.declared.features) == ["age"]
    assert loaded.job.sharding == Sharding(num_shards=8)
    assert loaded.options.beam_args == ("--runner=X",)


def test_text_is_what_is_written() -> None:
    """Whatever YAML takes it for: a number, a date, a boolean."""
    with pytest.raises(AssertionError):  # a file called 3, which `load` does not know
        load(f"{MINIMAL}schema: 3\n")
    loaded = load(
        "source: csv\ninputs: [2026, 1.0, on, 007]\noutput: 2026-11-20\nname: No\n"
    )
    assert loaded.options.inputs == tuple(
        f"/jobs/{name}" for name in ("2026", "1.0", "on", "007")
    )
    assert (loaded.options.output, loaded.job.name) == ("/jobs/2026-11-20", "No")
    assert load("source: csv\ninputs: a\noutput: 2026\n").job.name == "dataset_2026"


def test_what_is_not_given_has_the_defaults_of_convert() -> None:
    for nothing in ("", "name:\nshards: null\nsplits: ~\nparams:\n"):
        loaded = load(MINIMAL + nothing)
        assert loaded.job == JobSpec(
            source="csv", name="users", source_options=CsvOptions()
        )
        assert loaded.options == RunOptions(("/jobs/in.csv",), "/jobs/out/users")


# --- placeholders ---


def test_date_is_today_unless_set() -> None:
    text = "source: csv\ninputs: raw/{{ date }}/*.csv\noutput: out/{{date}}\n"
    assert load(text).options.inputs == ("/jobs/raw/2026-11-20/*.csv",)
    assert load(text, date="2026-11-19").options.output == "/jobs/out/2026-11-19"


def test_parameters() -> None:
    text = (
        "source: csv\ninputs: '{{ region }}/{{month}}/{{ n }}.csv'\noutput: out\n"
        "shards: '{{ n }}'\nshuffle: '{{ mixed }}'\nname: '{{ name }}'\n"
        "splits: {train: '{{ share }}', test: 0.10}\n"
        "params: {region: eu, month: 07, n: 8, mixed: false, name: null, share: 0.90}\n"
    )
    loaded = load(text, name="on", region="us")
    assert loaded.options.inputs == ("/jobs/us/07/8.csv",)
    job = loaded.job
    assert (job.sharding.num_shards, job.shuffle, job.name) == (8, False, "on")
    assert [split.fraction for split in job.splits] == ["0.90", "0.10"]
    assert "name: {{ name }} has no value: pass one with `set` name=VALUE" in problems(
        text
    )


@given(value=st.text(min_size=1))
def test_no_value_changes_the_structure(value: str) -> None:
    """A value is one text, whatever it holds, alone or inside a longer one."""
    text = MINIMAL + "split_by: '{{ v }}'\nscratch: '/x{{ v }}y'\n"
    uri, given = "/jobs/job.yaml", {"v": value}
    loaded = load_job(text.encode(), uri, given, DAY, bytes, FORMATS)
    assert loaded.job.split_by == value
    plain = load(MINIMAL)
    assert loaded.job.model_copy(update={"split_by": None}) == plain.job
    assert replace(loaded.options, scratch="") == plain.options


def test_settings() -> None:
    for wrong in ("a", "=1", "a b=1", "1a=1", "a-b=1"):
        with pytest.raises(UsageError, match="`set`: expected KEY=VALUE, found"):
            parse_settings([wrong])
    assert parse_settings(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(UsageError, match="`set`: a is given twice"):
        parse_settings(["a=1", "a=2"])
    unused = problems(MINIMAL + "seed: '{{ seed }}'\n", sede="1", seed="1")
    assert unused.endswith("is not used in the file; did you mean seed?")
    again = load(MINIMAL + "split_by: '{{ v }}'", v="{{ date }}")  # not filled in again
    assert again.job.split_by == "{{ date }}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inputs: '{{ dat }}'", "{{ dat }} has no value: pass one with `set` dat=VALUE, or a default in params; did you mean date?"),
        ("inputs: '{{ env.TOKEN }}'", "job files do not read environment variables. Keep secrets in"),
        ("inputs: '{{ env }}'", "job files do not read environment variables"),
        ("inputs: '{{ a b }}'", "expected one parameter's name between the braces"),
        ("inputs: '{{ date | upper }}'", "expected one parameter's name between the braces"),
        ("inputs: '{{}}'", "expected one parameter's name between the braces"),
        ("inputs: '{{ date'", "a {{ without its }}"),
        ("inputs: '{{ {{ date }} }}'", "expected one parameter's name between the braces"),
        ("splits: {'{{ date }}': 1}", "placeholders can only be in values, not in "
                                      "keys"),
        ("inputs: {{ date }}", 'a value that begins with {{ needs quotes: "{{ date }}"'),
        ("inputs: {{ date }}/a", 'a value that begins with {{ needs quotes: "{{ date }}"'),
        ("params: [a]", "expected a mapping of parameters"),
        ("params: {a: [1]}", "expected one value, found a list or a mapping"),
        ("params: {a: '{{ date }}'}", "defaults cannot contain placeholders"),
        ("params: {a-b: 1}", "expected a name like date, found 'a-b'"),
    ],
)  # fmt: skip
def test_wrong_placeholders(text: str, message: str) -> None:
    told = problems(f"source: csv\noutput: out\n{text}\n")
    assert message in told
    assert "line 3" in told


# --- what is wrong is told, all at once, with its line ---


def test_all_problems_at_once() -> None:
    text = """\
source: cvs
input: a
shards: 0
shard_size: 1M
splits: {train: 0.9, 'a b': x}
seed: '{{ sed }}'
name: 7up
keep: 2
gzip_level: 3
storage: {input: {secret_key: a}, outptu: 3}
beam: [1, {a: b}]
variant: cifar10
"""
    assert problems(text, seed="1").splitlines() == [
        "/jobs/job.yaml: 16 problems:",
        "  `set` seed: is not used in the file; did you mean sed?",
        "  inputs: not given",
        "  output: not given",
        "  line 1: source: expected 'images', 'audio', 'text', 'cifar', 'csv', 'parquet', 'arrow', 'jsonl', 'binary', 'idx', 'numpy', 'tfrecord' or 'webdataset', found 'cvs'",
        "  line 2: input: unknown field 'input'; did you mean inputs?",
        "  line 3: shards: expected 1 or more, found 0",
        "  line 4: shard_size: `shards`, `shard_size` and `readers` cannot be combined",
        "  line 5: splits: a b: expected a split name of letters, digits, '_' and '-', found 'a b'",
        "  line 6: seed: {{ sed }} has no value: pass one with `set` sed=VALUE, or a "
        "default in params; did you mean seed?",
        "  line 7: name: expected a name of letters, digits and '_' that "
        "starts with a letter, found '7up'",
        "  line 8: keep: requires `version=auto`",
        "  line 9: gzip_level: requires `compression=gzip`",
        "  line 10: storage: input: secret_key looks like a secret, but options are "
        "sent to workers and may be logged: credentials come from the environment, a "
        "profile or workload identity, never from options (docs/storage.md)",
        "  line 10: storage: outptu: unknown field 'outptu'; did you mean output?",
        "  line 11: beam: item 2: expected text, found {'a': 'b'}",
        "  line 12: variant: is an option of cifar: write cifar: {variant: ...}",
    ]


def test_storage_takes_what_the_command_takes() -> None:
    options = {"token": "anon", "client_kwargs": {"region_name": "eu"}}
    loaded = load(f"{MINIMAL}storage: {json.dumps({'input': options})}\n")
    assert loaded.options.storage.input == StorageOptions.from_values(options)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("colour: red", "line 4: colour: unknown field 'colour'; expected one of source, inputs,"),
        ("source: cifar", "line 4: 'source' is given twice, first on line 1"),
        ("splits: {train: 0.5, train: 0.5}", "'train' is given twice"),
        ("splits: {train: much, test: 0.4}", "splits: train: expected a fraction like"),
        ("splits: {train: }", "line 4: splits: train: expected text, found nothing"),
        ("splits: [train]", "splits: expected a mapping like {train: 0.9, test: 0.1}, found ['train']"),
        ("shards: many", "line 4: shards: expected a whole number, found 'many'"),
        ("shard_size: huge", "shard_size: expected a size like 128MiB or 100MB"),
        ("shard_size: [1]", "shard_size: expected a size like 128MiB or 100MB, found ['1']"),
        ("max_rejects: [1]", "max_rejects: expected a count like 10 or a share like 0.5%, found"),
        ("version: 1.0", "expected a version like 1.0.0, found '1.0'; or auto"),
        ("version: auto\noverwrite: true", "line 5: overwrite: `version=auto` never"),
        ("version: auto\nappend: true", "line 5: append: adds to a dataset, but `version=auto` publishes a new one"),
        ("overwrite: true\nappend: true", "line 5: append: adds to the dataset that `overwrite` would replace"),
        ("version: auto\nkeep: 0", "line 5: keep: expected 1 or more"),
        ("shuffle: maybe", "shuffle: expected true or false, found 'maybe'"),
        ("compression: zip", "compression: expected 'none' or 'gzip', found 'zip'"),
        ("feature_names: tutorial", "line 4: feature_names: is an option of images: write images: {feature_names: ...}"),
        ("images: {feature_names: tutorial}", "line 4: images: requires source: images"),
        ("csv: {separator: x}", "line 4: csv: separator: unknown field 'separator'"),
        ("csv: [a]", "line 4: csv: expected a mapping, found ['a']"),
        ("storage: {output: {aws_session_token: x}}", "looks like a secret"),
        ("storage: {input: {client_kwargs: {password: x}}}", "client_kwargs.password looks like a secret"),
        ("beam: --s3_secret_access_key=x", "--s3_secret_access_key looks like a secret"),
        ("storage: s3", "storage: expected a mapping, found 's3'"),
        ("beam: {a: b}", "beam: expected a list, found {'a': 'b'}"),
        ("split_by: ''", "split_by: expected text, found none"),
        ("a: !!python/object:os.system {}", "the tag !!python/object:os.system is not"),
        ("a: b: c", "not valid YAML"),
    ],
)  # fmt: skip
def test_refused(more: str, message: str) -> None:
    assert message in problems(f"{MINIMAL}{more}\n")


def test_no_mapping() -> None:
    for text in ("- a", "just text", "3"):
        assert "job.yaml: expected a mapping like\n  source: csv" in problems(text)
    assert problems("") == "/jobs/job.yaml: is empty"


def test_inline_schema_is_told_by_its_lines() -> None:
    with pytest.raises(SchemaError) as caught:
        load(MINIMAL + "schema:\n  features:\n    a: int32\n    b: {dtyp: int64}\n")
    assert "line 7: feature 'b'" in str(caught.value)
    assert "did you mean dtype?" in str(caught.value)


# --- paths ---


@pytest.mark.parametrize(
    ("path", "base", "expected"),
    [
        ("a/*.csv", "/jobs", "/jobs/a/*.csv"),
        ("../a", "/jobs/x", "/jobs/a"),
        ("/a", "/jobs", "/a"),
        ("gs://b/a", "/jobs", "gs://b/a"),
        ("a", "s3://b/jobs", "s3://b/jobs/a"),
        ("../a", "s3://b/jobs", "s3://b/a"),
        ("file:///a", "s3://b/jobs", "file:///a"),
        ("a", "", "/here/a"),
        ("../a", "jobs", "/here/a"),
    ],
)
def test_paths_begin_at_the_file(
    path: str, base: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_path(path, base) == expected.replace("/here", str(tmp_path))


# --- the JSON Schema ---


def test_json_schema_is_up_to_date() -> None:
    """If not: recordmill run --job-schema > schemas/job_file.schema.json"""
    file = files("recordmill.schemas").joinpath("job_file.schema.json")
    assert file.read_bytes() == job_schema_bytes(FORMATS)


def test_json_schema_takes_placeholders() -> None:
    """Wherever no text stands anyway, so that editors do not complain."""
    placeholder = {"type": "string", "pattern": r"\{\{.*\}\}"}
    fields = json.loads(job_schema_bytes(FORMATS))["properties"]
    for name in ("source", "shards", "seed", "shuffle", "workers", "compression"):
        assert placeholder in fields[name]["anyOf"], name
    for name in ("output", "version", "inputs", "splits", "params", "beam"):
        assert placeholder not in fields[name].get("anyOf", []), name
