"""Whole conversions by the command: bytes, order, balance, splits, types, files."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from job_inputs import FIRST_ROWS, MIXED_ROWS, MixedInput
from job_tools import (
    GOLDEN,
    IRIS,
    SAMPLES,
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    python,
    shards_of,
)
from same_dataset import shard_names
from small_dataset import SCHEMA

from recordmill.beam_jobs.pipelines import convert as convert_steps
from recordmill.schemas.feature_spec import compare_schemas
from recordmill.schemas.job import JobSpec
from recordmill.schemas.names import staged_file_name
from recordmill.schemas.options import Compression, Payload
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.ranges import InputRange, ShardResult, unpack_value
from recordmill.schemas.tfmd import load_pbtxt
from recordmill.transforms.commit.staging import description_files
from recordmill.transforms.dataset.files import load_expected
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import scan_boundaries

# The other jobs write to memory, which takes direct I/O that a disk refuses.
pytestmark = pytest.mark.on_disk


@pytest.mark.parametrize(
    ("source", "file", "options"),
    [
        ("cifar", "cifar10.bin", []),
        ("cifar", "cifar100.bin", []),
        ("csv", "tutorial.csv", []),
        ("images", "images", ["--feature-names", "tutorial"]),
    ],
)
def test_golden_bytes(
    tmp_path: Path, source: str, file: str, options: list[str]
) -> None:
    """Expected: what TensorFlow wrote of the same rows, see data/golden/README.md."""
    convert(source, GOLDEN / file, tmp_path / "out", "--no-shuffle", *options)
    assert_whole(tmp_path / "out")
    (shard,) = shards_of(tmp_path / "out")
    golden = GOLDEN / Path(file).with_suffix(".tfrecord").name
    assert shard.read_bytes() == golden.read_bytes()


@pytest.mark.parametrize("source", ["csv", "cifar", "images"])
def test_same_bytes(
    tmp_path: Path,
    source: str,
    mixed: MixedInput,
    cifar_folder: Path,
    image_folder: Path,
) -> None:
    inputs = {"csv": mixed.files, "cifar": [cifar_folder], "images": [image_folder]}
    splits = ["--split", "train=0.8", "--split", "validation=0.2"]
    runs: list[list[Argument]] = [
        ["--workers", 1],
        ["--workers", 2],
        ["--workers", 2, "--scratch", tmp_path / "scratch"],
        ["--workers", 1, "--exchange", "engine"],
        ["--workers", 2, "--exchange", "engine"],
    ]
    if source != "csv":  # nothing but the rows differs in what the others show
        runs = [runs[0], [*runs[1], "--exchange", "scratch"], runs[4]]
        runs += [["--exchange", "reference"]]
    found = []
    for number, options in enumerate(runs):
        output = tmp_path / str(number) / "same"
        convert(source, *inputs[source], output, "--shards", 3, *splits, *options)
        found.append(contents(output))
    assert_whole(tmp_path / "0" / "same")
    shards = [name for name in found[0] if ".tfrecord-" in name]
    assert len(shards) == (9 if source == "cifar" else 6)  # its test files are a split
    assert {"manifest.json", "dataset_info.json", "features.json"} <= found[0].keys()
    for other in found[1:]:
        assert other == found[0]
    assert source != "csv" or list((tmp_path / "scratch").iterdir()) == []


@pytest.fixture(scope="module")
def seven_shards(mixed: MixedInput, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("seven") / "mixed"
    convert("csv", *mixed.files, output, "--shards", 7)
    return output


def test_shards_are_balanced(seven_shards: Path) -> None:
    sizes = [shard.stat().st_size for shard in shards_of(seven_shards)]
    assert len(sizes) == 7
    assert max(sizes) / min(sizes) <= 1.01
    assert_whole(seven_shards)


def test_ranges_that_are_scanned_together_make_the_same_bytes(
    tmp_path: Path,
    seven_shards: Path,
    mixed: MixedInput,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a store, where each waits for its answer; the last part has fewer."""
    sizes = []

    def counted(context: RunContext, ranges: Sequence[InputRange]) -> list[int]:
        sizes.append(len(ranges))
        return scan_boundaries(context, ranges)

    changed = {"is_local": lambda _: False, "MIN_ELEMENTS": 1, "PARALLEL_SCANS": 2}
    for name, value in changed.items():
        monkeypatch.setattr(convert_steps, name, value)
    monkeypatch.setattr(convert_steps, "scan_boundaries", counted)
    output = tmp_path / "mixed"
    convert("csv", *mixed.files, output, "--shards", 7)
    assert contents(output) == contents(seven_shards)
    assert sorted(sizes) == [1, 2]


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_results_that_stay_packed_make_the_same_bytes(
    tmp_path: Path,
    seven_shards: Path,
    mixed: MixedInput,
    monkeypatch: pytest.MonkeyPatch,
    exchange: str,
) -> None:
    monkeypatch.setattr("recordmill.schemas.ranges.MAX_UNPACKED_RESULTS", 0)
    output = tmp_path / "mixed"
    convert("csv", *mixed.files, output, "--shards", 7, "--exchange", exchange)
    assert contents(output) == contents(seven_shards)


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_ranges_that_go_together_make_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    """The last one alone; of the first two one is read again, for the other's last row."""
    for name in ("a", "b", "c"):
        last = "1.5,2\n" if name == "b" else "1,2\n"
        (tmp_path / f"{name}.csv").write_text("n,m\n" + "1,1\n" * 80_000 + last)
    job = ["csv", str(tmp_path / "*.csv")]
    alone, together = tmp_path / "1" / "rows", tmp_path / "2" / "rows"
    convert(*job, alone, "--exchange", exchange)
    read, measured = list[list[int]](), list[list[int]]()

    def noted(context: RunContext, task: Callable[..., Any], packed: bytes) -> bytes:
        each = unpack_value(packed)
        (read if each[0][2:] else measured).append([one[0].index for one in each])
        return execute(context, task, packed)

    execute = RunContext.execute_packed
    monkeypatch.setattr(RunContext, "execute_packed", noted)
    monkeypatch.setattr(convert_steps, "MAX_ELEMENTS", 2)
    convert(*job, together, "--exchange", exchange)
    assert contents(together) == contents(alone)
    assert sorted(measured) == [[0, 1], [2]]
    assert sorted(read) == [[0], [2]]


def test_every_row_is_there_once(seven_shards: Path, mixed: MixedInput) -> None:
    texts: dict[int, str] = {}
    for example in examples_of(seven_shards):
        feature = example.features.feature
        (row,) = feature["id"].int64_list.value
        assert row not in texts
        texts[row] = b"".join(feature["text"].bytes_list.value).decode()
        assert feature["group"].bytes_list.value == [mixed.groups[row].encode()]
    assert [texts[row] for row in range(MIXED_ROWS)] == mixed.texts


def test_seed_changes_the_order(
    tmp_path: Path, seven_shards: Path, mixed: MixedInput
) -> None:
    other = tmp_path / "mixed"
    convert("csv", *mixed.files, other, "--shards", 7, "--seed", 1)
    first, second = ints(seven_shards, "id"), ints(other, "id")
    assert sorted(first) == sorted(second) == list(range(MIXED_ROWS))
    # Two random orders share about one place.
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 20
    assert sum(a == b for a, b in zip(first, range(MIXED_ROWS), strict=True)) < 20


def test_splits_have_their_share(tmp_path: Path, mixed: MixedInput) -> None:
    output = tmp_path / "mixed"
    splits = ["--split", "train=0.9", "--split", "test=1/10"]
    convert("csv", *mixed.files, output, *splits)
    train, test = ints(output, "id"), ints(output, "id", "test")
    assert sorted(train + test) == list(range(MIXED_ROWS))
    assert abs(len(test) - 2600) < 242  # five standard deviations
    found = manifest_of(output)["splits"]
    assert {name: split["records"] for name, split in found.items()} == {
        "train": len(train),
        "test": len(test),
    }
    assert_whole(output)


def test_split_by_keeps_groups_together(tmp_path: Path, mixed: MixedInput) -> None:
    output = tmp_path / "mixed"
    splits = ["--split", "train=0.7", "--split", "test=0.3", "--split-by", "group"]
    convert("csv", *mixed.files, output, *splits)
    train, test = ints(output, "id"), ints(output, "id", "test")
    assert sorted(train + test) == list(range(MIXED_ROWS))
    train_groups = {mixed.groups[row] for row in train}
    test_groups = {mixed.groups[row] for row in test}
    assert not train_groups & test_groups
    assert len(train_groups | test_groups) == 500
    assert 100 < len(test_groups) < 200  # 150, five standard deviations


def test_no_shuffle_keeps_the_order(tmp_path: Path, mixed: MixedInput) -> None:
    output = tmp_path / "mixed"
    first, second = mixed.files
    convert("csv", second, first, output, "--no-shuffle", "--shards", 3)
    assert ints(output, "id") == [*range(FIRST_ROWS, MIXED_ROWS), *range(FIRST_ROWS)]
    assert len(shards_of(output)) == 3


# Each column has one type until its last cell, far from what a sample sees.
LAST_CELLS = {
    "decimal": ("17", "0.5", "float_list"),
    "zeros": ("17", "007", "bytes_list"),
    "beyond": ("17", "9223372036854775808", "bytes_list"),
    "word": ("0.5", "none", "bytes_list"),
    "flag": ("true", "2", "bytes_list"),
    "kept": ("17", "-9223372036854775808", "int64_list"),
    "late": ("", "1.5", "float_list"),
    "never": ("", "", "bytes_list"),
}
NUM_TYPED = 34_000


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three input ranges; "third" has a value in every third row."""
    folder = tmp_path_factory.mktemp("typed")
    header = ",".join(["id", *LAST_CELLS, "third", "padding"])
    cells = ",".join(first for first, _, _ in LAST_CELLS.values())
    last = ",".join(last for _, last, _ in LAST_CELLS.values())
    padding = "x" * 1200
    with (folder / "typed.csv").open("w") as file:
        file.write(f"{header}\n")
        for row in range(NUM_TYPED):
            third = "" if row % 3 else row
            row_cells = cells if row < NUM_TYPED - 1 else last
            file.write(f"{row},{row_cells},{third},{padding}\n")
    assert (folder / "typed.csv").stat().st_size > 2 * (16 << 20)
    options = ("--odd-cells", "widen", "--no-shuffle", "--shards", 2)
    convert("csv", folder / "typed.csv", folder / "out", *options)
    return folder / "out"


def cell_of(example: Example, name: str) -> tuple[str, object]:
    """Kind and value of a feature; ("", None) if it is left out."""
    if name not in example.features.feature:
        return "", None
    feature = example.features.feature[name]
    kind = str(feature.WhichOneof("kind"))
    (value,) = getattr(feature, kind).value
    return kind, value.decode() if isinstance(value, bytes) else value


def test_last_cell_decides_the_type(typed: Path) -> None:
    examples = list(examples_of(typed))
    assert len(examples) == NUM_TYPED
    features = {f["name"]: f for f in manifest_of(typed)["features"]}
    for name, (first, last, kind) in LAST_CELLS.items():
        parse = {"float_list": float, "int64_list": int}.get(kind, str)
        usual = (kind, parse(first)) if first else ("", None)
        assert {cell_of(example, name) for example in examples[:-1]} == {usual}, name
        at_end = (kind, parse(last)) if last else ("", None)
        assert cell_of(examples[-1], name) == at_end, name
        assert features[name]["kind"] == kind
        assert features[name]["optional"] == (first == ""), name


def test_empty_cell_is_left_out(typed: Path) -> None:
    for row, example in enumerate(examples_of(typed)):
        expected = ("", None) if row % 3 else ("int64_list", row)
        assert cell_of(example, "third") == expected
        assert cell_of(example, "id") == ("int64_list", row)
    features = {f["name"]: f for f in manifest_of(typed)["features"]}
    assert features["third"]["optional"]
    assert not features["id"]["optional"]


@pytest.mark.parametrize(
    "tail",
    [
        b"a,b,c\n",  # the last range has one row
        b"",  # it has the end of a row alone
        b"\n\n\n",  # empty lines
    ],
)
def test_range_of_few_rows(tmp_path: Path, tail: bytes) -> None:
    """The last input range begins within the row that began before it."""
    row = b"x" * 998 + b",1\n"
    num_rows = (16 << 20) // len(row) + 1
    (tmp_path / "in.csv").write_bytes(b"text,number\n" + row * num_rows + tail)
    options = ["--max-rejects", "1"]
    convert("csv", tmp_path / "in.csv", tmp_path / "out", *options)
    assert ints(tmp_path / "out", "number") == [1] * num_rows
    assert manifest_of(tmp_path / "out")["rows_rejected"] == int(tail.startswith(b"a"))


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("digits", "digits"),
        ("my photos-2024", "my_photos_2024"),
        ("2024", "dataset_2024"),
        ("größe", "gr_e"),
        ("写真", "dataset"),
        ("nested/deep/", "deep"),
    ],
)
def test_name_comes_from_the_output(tmp_path: Path, output: str, name: str) -> None:
    convert("csv", IRIS, f"{tmp_path}/{output}")
    (shard,) = shards_of(tmp_path / output)
    mark = manifest_of(tmp_path / output)["fingerprint"][:8]
    assert shard.name == f"{name}-train.{mark}.tfrecord-00000-of-00001"
    assert manifest_of(tmp_path / output)["name"] == name


def test_output_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flowers").mkdir()
    monkeypatch.chdir(tmp_path / "flowers")
    convert("csv", IRIS, ".")
    assert manifest_of(tmp_path / "flowers")["name"] == "flowers"
    assert_whole(tmp_path / "flowers")


def test_gzip(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    convert("csv", IRIS, output, "--compression", "gzip", "--shards", 2, "--no-shuffle")
    convert("csv", IRIS, tmp_path / "plain", "--no-shuffle", "--name", "iris")
    assert shard_names(output) == [
        "iris-train-00000-of-00002.tfrecord.gz",
        "iris-train-00001-of-00002.tfrecord.gz",
    ]
    both = b"".join(gzip.decompress(shard.read_bytes()) for shard in shards_of(output))
    (plain,) = shards_of(tmp_path / "plain")
    assert both == plain.read_bytes()
    for shard in shards_of(output):
        assert shard.read_bytes()[4:8] == bytes(4)  # mtime: no clock in a shard
    assert not (output / "dataset_info.json").exists()
    assert_whole(output)


@pytest.fixture(scope="module")
def plain_cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """33,000 records, 104,775,000 bytes when framed."""
    path = tmp_path_factory.mktemp("plain") / "cifar-10.bin"
    records = np.zeros((33_000, 3073), np.uint8)
    records[:, 0] = np.arange(33_000) % 10
    records.tofile(path)
    return path


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        (["--shard-size", "50MiB"], 2),  # 52,428,800 bytes
        (["--shard-size", "104775000"], 1),
        (["--shard-size", "104774999"], 2),
        ([], 1),  # 128 MiB
        (["--readers", 2], 10),  # ten for each would be of 5 MB
    ],
)
def test_number_of_shards(
    tmp_path: Path, plain_cifar: Path, options: list[Argument], shards: int
) -> None:
    convert("cifar", plain_cifar, tmp_path / "out", *options)
    found = shards_of(tmp_path / "out")
    assert shard_names(tmp_path / "out") == [
        f"out-train.tfrecord-{index:05d}-of-{shards:05d}" for index in range(shards)
    ]
    assert sum(shard.stat().st_size for shard in found) == 104_775_000


def test_small_input_has_one_shard_per_reader_rule(tmp_path: Path) -> None:
    convert("cifar", SAMPLES / "cifar", tmp_path / "out", "--readers", 3)
    splits = manifest_of(tmp_path / "out")["splits"]
    assert {name: len(split["shards"]) for name, split in splits.items()} == {
        "train": 1,
        "test": 1,
    }


def test_no_more_shards_than_rows(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a\n1\n2\n3\n")
    convert("csv", tmp_path / "in.csv", tmp_path / "out", "--shards", 9)
    found = shards_of(tmp_path / "out")
    assert sorted(ints(tmp_path / "out", "a")) == [1, 2, 3]
    assert all(shard.stat().st_size for shard in found)
    assert 1 <= len(found) <= 3


SHARD = ShardResult("train", 0, "", 1, 116, 100, 0)
ALWAYS = {"schema.pbtxt", "image.class.label.labels.txt"}
OF_TFDS = {"dataset_info.json", "features.json"}


@pytest.mark.parametrize("payload", get_args(Payload))
@pytest.mark.parametrize("compression", get_args(Compression))
def test_tfds_files_only_where_tfds_can_read(
    payload: Payload, compression: Compression
) -> None:
    job = JobSpec(source="csv", name="zoo", payload=payload, compression=compression)
    files = description_files(job, SCHEMA, [SHARD])
    readable = payload == "example" and compression == "none"
    assert set(files) == ALWAYS | (OF_TFDS if readable else set())


@pytest.mark.parametrize(
    ("source", "path"),
    [("images", SAMPLES / "images"), ("cifar", SAMPLES / "cifar"), ("csv", IRIS)],
)
def test_schema_pbtxt_is_the_schema_of_the_dataset(
    tmp_path: Path, source: str, path: Path
) -> None:
    output = tmp_path / "out"
    convert(source, path, output, "--compression", "gzip")
    assert_whole(output)
    assert manifest_of(output)["payload"] == "example"
    data = (output / "schema.pbtxt").read_bytes()
    declared = load_pbtxt(data, "schema.pbtxt")
    assert declared.to_schema() == load_expected(str(output))
    assert compare_schemas(load_expected(str(output / "schema.pbtxt")), load_expected(str(output))) == []  # fmt: skip


def test_overwriting_leaves_one_schema(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("cifar", SAMPLES / "cifar", output)
    convert("csv", IRIS, output, "--overwrite", "--grace", "0")
    assert sorted(
        staged_file_name(file.name) for file in output.iterdir() if file.is_file()
    ) == [
        "dataset_info.json",
        "features.json",
        "inputs.jsonl.gz",
        "inventory.jsonl.gz",
        "manifest.json",
        "out-train.tfrecord-00000-of-00001",
        "run.json",
        "schema.pbtxt",
    ]
    features = load_pbtxt((output / "schema.pbtxt").read_bytes(), "").features
    assert "species" in features


LEFT_BY_THE_DEAD = """
import os, sys
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire
acquire(LocalStore(sys.argv[1]))
os._exit(1)
"""


def test_a_run_killed_after_its_last_step_leaves_nothing_for_long(
    tmp_path: Path,
) -> None:
    """Its dataset stands; the next run finds it unchanged, and the dead one's lock."""
    output = tmp_path / "out"
    convert("csv", IRIS, output)
    python(LEFT_BY_THE_DEAD, output)
    assert list(output.glob(".recordmill/lock/*"))
    ran = convert("csv", IRIS, output)
    assert "already exists" in ran.err
    assert_whole(output)


def test_the_lock_of_a_living_run_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output)
    with acquire(LocalStore(str(output))):
        locks = list(output.glob(".recordmill/lock/*"))
        convert("csv", IRIS, output)
        assert list(output.glob(".recordmill/lock/*")) == locks != []
