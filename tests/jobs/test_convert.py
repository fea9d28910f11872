"""Whole conversions by the command: bytes, order, balance, splits, types."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_inputs import FIRST_ROWS, MIXED_ROWS, MixedInput
from job_tools import (
    GOLDEN,
    IRIS,
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
    shards_of,
)

from recordmill.schemas.proto.example_pb2 import Example


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


def test_csv_does_not_travel_by_reference(tmp_path: Path) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path, "--exchange", "reference")
    assert ran.status == 2
    assert "--exchange" in ran.err


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
    convert("csv", folder / "typed.csv", folder / "out", "--no-shuffle", "--shards", 2)
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
