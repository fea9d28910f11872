"""open_dataset: rows by number, batches in any order, as Arrow and as NumPy have them."""

from __future__ import annotations

import io
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from decode_cases import written
from hypothesis import given
from hypothesis import strategies as st
from job_tools import GOLDEN, IRIS, Argument, convert, recordmill, shards_of
from PIL import Image
from pixel_zoo import IMAGES
from row_keys import keys_of

from recordmill import open_dataset, read_rows
from recordmill.schemas.errors import CorruptRecordError, OutputError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.rows.open_dataset import Dataset, to_numpy, worker_batches
from recordmill.transforms.rows.read_rows import to_dicts

SCHEMA = """\
features:
  id: int64
  tags: {dtype: string, shape: [null], separator: ";"}
  point: {dtype: float32, shape: [2], separator: " "}
  score: {dtype: float32, optional: true}
  exact: {dtype: float64, stored: tensor}
"""
ROWS = 200


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    lines = [
        f"{n},{';'.join('abc'[: 1 + n % 3])},{n} {n / 2},{n if n % 3 else ''},{n / 7}"
        for n in range(ROWS)
    ]
    (folder / "rows.csv").write_text("\n".join(["id,tags,point,score,exact", *lines]))
    (folder / "schema.yaml").write_text(SCHEMA)
    split = ["--split", "train=0.75", "--split", "test=0.25", "--shards", 3]
    schema = ["--schema", folder / "schema.yaml"]
    convert("csv", folder / "rows.csv", folder / "out", *schema, *split)
    return folder / "out"


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("cifar") / "out"
    convert("cifar", GOLDEN / "cifar10.bin", output, "--shards", 2)
    return output


def test_rows_by_number_are_those_in_order(table: Path) -> None:
    data = open_dataset(table)
    rows = list(read_rows(table))
    assert len(data) == len(rows) == ROWS
    numbers = np.random.default_rng(1).permutation(ROWS)
    assert keys_of(data[int(n)] for n in numbers[:20]) == keys_of(
        rows[n] for n in numbers[:20]
    )
    assert keys_of(data.__getitems__(numbers.tolist())) == keys_of(
        [rows[n] for n in numbers]
    )
    assert keys_of(list(data)) == keys_of(rows)
    assert keys_of(data[190:]) == keys_of(rows[190:])
    assert keys_of(data[10:2:-3]) == keys_of(rows[10:2:-3])
    singles = [data[-1], data[-ROWS], data[np.int64(3)]]
    assert keys_of(singles) == keys_of([rows[-1], rows[0], rows[3]])
    for number in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError, match=f"row {number} of {ROWS}"):
            data[number]


def test_a_split_alone(table: Path) -> None:
    train, test = open_dataset(table, "train"), open_dataset(table, "test")
    both = open_dataset(table, ["train", "test"])
    assert len(train) + len(test) == len(both) == ROWS
    ids = [set(data.take(range(len(data)))["id"].to_pylist()) for data in (train, test)]
    assert ids[0] | ids[1] == set(range(ROWS))
    with pytest.raises(
        UsageError, match="no split 'valid'; the dataset has 'train', 'test'"
    ):
        open_dataset(table, "valid")


def test_rows_repeat_and_come_as_asked(table: Path) -> None:
    data = open_dataset(table)
    batch = data.take([5, 5, -1, 0, 120, 5])
    expected = [data[number]["id"] for number in (5, 5, -1, 0, 120, 5)]
    assert batch["id"].to_pylist() == expected
    empty = data.take([])
    assert (empty.num_rows, empty.schema.names) == (0, batch.schema.names)


@pytest.mark.parametrize("seed", [None, 7])
def test_an_epoch_has_every_row_once(table: Path, seed: int | None) -> None:
    data = open_dataset(table)
    epochs = [
        [b["id"].to_pylist() for b in data.batches(32, seed=seed, epoch=epoch)]
        for epoch in (0, 0, 1)
    ]
    assert [len(ids) for ids in epochs[0]] == [32] * 6 + [8]
    assert epochs[0] == epochs[1]
    flat = [[one for batch in ids for one in batch] for ids in epochs]
    in_order = [row["id"] for row in read_rows(table)]
    assert sorted(flat[0]) == sorted(flat[2]) == sorted(in_order)
    assert (flat[0] == in_order) == (flat[0] == flat[2]) == (seed is None)
    full = list(data.batches(32, seed=seed, drop_last=True))
    assert [batch.num_rows for batch in full] == [32] * 6


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_workers_share_an_epoch(table: Path, workers: int) -> None:
    data = open_dataset(table)
    shares = [
        [
            batch["id"].to_pylist()
            for batch in data.batches(32, seed=1, worker=worker, num_workers=workers)
        ]
        for worker in range(workers)
    ]
    alone = [batch["id"].to_pylist() for batch in data.batches(32, seed=1)]
    assert [shares[n % workers][n // workers] for n in range(7)] == alone
    assert sum(map(len, shares)) == 7


@pytest.mark.parametrize("start", [0, 7, 64, 199, 200])
@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_an_epoch_continues_for_any_number_of_workers(
    table: Path, workers: int, start: int
) -> None:
    data = open_dataset(table)
    order: dict[str, Any] = {"seed": 1, "epoch": 3, "start": start}
    shares = [
        [
            batch["id"].tolist()
            for batch in data.numpy_batches(
                32, **order, worker=worker, num_workers=workers
            )
        ]
        for worker in range(workers)
    ]
    count = sum(map(len, shares))
    found = [row for n in range(count) for row in shares[n % workers][n // workers]]
    assert found == [row["id"] for row in data.stream(seed=1, epoch=3)][start:]


@given(
    st.integers(0, 300),
    st.integers(1, 40),
    st.integers(1, 5),
    st.lists(st.integers(0, 300), min_size=2, max_size=2),
)
def test_a_share_continues_at_every_row(
    count: int, size: int, workers: int, numbers: list[int]
) -> None:
    start, read = numbers
    for worker in range(workers):
        how = {"start": min(start, count), "worker": worker, "num_workers": workers}
        share = [n for span in worker_batches(count, size, **how) for n in range(*span)]
        left = [
            n
            for span in worker_batches(count, size, **how, read=read)
            for n in range(*span)
        ]
        assert left == share[read:]


@pytest.mark.parametrize(
    ("size", "worker", "count", "told"),
    [
        (0, 0, 1, "0 rows: expected 1"),
        (1, 1, 1, "worker=1 of num_workers=1"),
        (1, -1, 2, "worker=-1: expected a whole number, 0 or more"),
    ],
)
def test_a_batch_that_cannot_be_is_told(
    table: Path, size: int, worker: int, count: int, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        next(open_dataset(table).batches(size, worker=worker, num_workers=count))


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("zipped") / "out"
    convert("csv", IRIS, output, "--compression", "gzip", "--shards", 4)
    return output


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["table", "zipped"])
def test_a_stream_has_every_row_once(
    request: pytest.FixtureRequest, kind: str, workers: int
) -> None:
    data = open_dataset(request.getfixturevalue(kind))
    in_order = keys_of(data)
    epochs = []
    for seed, epoch in ((None, 0), (1, 0), (1, 0), (1, 1), (2, 0)):
        order: dict[str, Any] = {"seed": seed, "epoch": epoch, "num_workers": workers}
        shares = [
            keys_of(data.stream(**order, buffer=20, worker=worker))
            for worker in range(workers)
        ]
        epochs.append([row for share in shares for row in share])
        assert sorted(epochs[-1]) == sorted(in_order)
        assert all(shares)
    plain, first, again, *others = epochs
    assert (plain == in_order) == (workers == 1)
    assert first == again
    assert first not in (plain, *others)


def test_a_buffer_mixes_rows_of_compressed_shards(zipped: Path) -> None:
    """A row comes at the earliest when the buffer is full of those before it."""
    data = open_dataset(zipped)
    one, many = (keys_of(data.stream(seed=3, buffer=n)) for n in (1, 1000))
    assert sorted(one) == sorted(many) == sorted(keys_of(data))
    shards = [
        keys_of(read_rows(zipped, reader_index=n, num_readers=4)) for n in range(4)
    ]
    starts = [shard[:20] for shard in shards]
    assert one[:20] in starts  # the first of some shard, as they lie in it
    assert many[:20] not in starts
    with pytest.raises(UsageError, match="buffer=0: expected 1 row or more"):
        next(data.stream(buffer=0))
    with pytest.raises(UsageError, match="worker=2 of num_workers=2"):
        next(data.stream(worker=2, num_workers=2))


def test_numpy_batches_stack_what_has_one_shape(table: Path, cifar: Path) -> None:
    first = next(open_dataset(table).numpy_batches(50))
    kinds = {name: (value.dtype.str, value.shape) for name, value in first.items()}
    assert kinds == {
        "id": ("<i8", (50,)),
        "tags": ("|O", (50,)),
        "point": ("<f4", (50, 2)),
        "score": ("|O", (50,)),
        "exact": ("<f8", (50,)),
    }
    images = next(open_dataset(cifar).numpy_batches(4, seed=1))
    assert (images["image"].dtype, images["image"].shape) == (np.uint8, (4, 32, 32, 3))
    assert images["label"].dtype == np.int64
    assert len(open_dataset(cifar).class_names["label"]) == 10


def test_arrays_may_be_written_to(table: Path, cifar: Path, tmp_path: Path) -> None:
    """PyTorch makes tensors of them, and warns where it could not write."""
    path = tmp_path / "in" / "a" / "1.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(IMAGES["rgb.jpg"][0])
    convert("images", tmp_path / "in", tmp_path / "out")
    for folder in (table, cifar, tmp_path / "out"):
        data = open_dataset(folder, decode=True)
        columns = next(data.numpy_batches(1))
        arrays = [*columns.values(), *data[0].values()]
        assert all(a.flags.writeable for a in arrays if isinstance(a, np.ndarray))


def scalar(value: Any) -> Any:
    """NumPy's numbers and arrays without a side as Python's numbers."""
    single = isinstance(value, np.generic | np.ndarray) and value.shape == ()
    return value.item() if single else value


@given(written(others=False))
def test_columns_hold_what_the_rows_hold(case: tuple[Schema, list[bytes]]) -> None:
    schema, records = case
    decoded = decode_payload(pa.array(records, pa.binary()), schema, "example")
    good = [n for n in range(len(records)) if n not in dict(decoded.row_errors)]
    batch = decoded.batch.take(pa.array(good, pa.int64()))
    columns = to_numpy(batch, schema)
    for number, row in enumerate(to_dicts(batch, schema)):
        for name, value in row.items():
            cell = columns[name][number]
            assert keys_of([{name: scalar(cell)}]) == keys_of([{name: scalar(value)}])


@pytest.mark.parametrize("decode", [False, True])
def test_images_are_files_or_pixels(tmp_path: Path, decode: bool) -> None:
    for number, name in enumerate(("rgb.jpg", "gray.png", "rgba.png", "rgb.bmp")):
        path = tmp_path / "in" / "ab"[number % 2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(IMAGES[name][0])
    convert("images", tmp_path / "in", tmp_path / "out")
    data = open_dataset(tmp_path / "out", decode=decode)
    (name,) = (f.name for f in data.schema.features if f.name == "image")
    shapes = set()
    for row in (
        *data,
        *data[:],
        *[
            dict(zip(b, c, strict=True))
            for b in data.numpy_batches(1)
            for c in zip(*b.values(), strict=True)
        ],
    ):
        image = row[name]
        if not decode:
            image = np.asarray(Image.open(io.BytesIO(image)))
        shapes.add((image.shape, image.dtype.name))
    channels = {shape[2] for shape, _ in shapes} if decode else {1, 3, 4}
    assert channels == {1, 3, 4}
    assert {kind for _, kind in shapes} == {"uint8"}


def test_gzip_is_read_in_order_only(tmp_path: Path) -> None:
    job: list[Argument] = [IRIS, tmp_path / "gz", "--compression", "gzip"]
    convert("csv", *job)
    data = open_dataset(tmp_path / "gz")
    with pytest.raises(
        UsageError, match="compressed with gzip, so single records"
    ) as told:
        data[0]
    assert "`for row in dataset`" in str(told.value)
    rows = [row["species"] for row in data]  # the first remedy
    assert len(rows) == len(data) == 150
    with pytest.raises(
        UsageError, match=r"start=9: .* convert with `compression=none`"
    ):
        next(data.stream(start=9))
    convert("csv", IRIS, tmp_path / "plain", "--compression", "none")  # and the other
    assert len(list(open_dataset(tmp_path / "plain").stream(start=9))) == 141
    assert open_dataset(tmp_path / "plain")[0]["species"] == rows[0]


def damage(dataset: Path, offset: int) -> Path:
    (shard,) = shards_of(dataset)
    data = bytearray(shard.read_bytes())
    data[offset] ^= 1
    shard.write_bytes(data)
    return shard


@pytest.mark.parametrize("where", ["length", "3,159 bytes"])
def test_damage_is_told_with_its_place(tmp_path: Path, where: str) -> None:
    convert("cifar", GOLDEN / "cifar10.bin", tmp_path / "out")
    data = open_dataset(tmp_path / "out")
    size = shards_of(tmp_path / "out")[0].stat().st_size // len(data)
    shard = damage(tmp_path / "out", size + (2 if where == "length" else 500))
    with pytest.raises(CorruptRecordError) as error:
        data[1]
    assert (error.value.uri, error.value.record_index) == (str(shard), 1)
    assert error.value.offset == size
    assert f"checksum of the record's {where} is wrong" in str(error.value)
    if where == "data":
        assert data[0]["image"].shape == (32, 32, 3)


def test_another_file_in_place_of_a_shard_is_told(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "out")
    (shard,) = shards_of(tmp_path / "out")
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(
        OutputError, match=r"bytes, the manifest records .*recordmill verify"
    ):
        open_dataset(tmp_path / "out")[0]


def lengths_of(data: Dataset, answers: Any) -> None:
    answers.put((len(data), data[3]["id"]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_get_it_by_pickle_or_fork(table: Path, method: str) -> None:
    data = open_dataset(table)
    expected = data[3]["id"]  # its shard is open
    assert len(pickle.dumps(data)) < 20_000
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=lengths_of, args=(data, answers))
    child.start()
    assert answers.get(timeout=600) == (ROWS, expected)
    child.join()


def test_a_split_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    halves = ["--split", "train=0.5", "--split", "test=0.5"]
    convert("csv", tmp_path / "a.csv", tmp_path / "out", *halves)
    parts = [open_dataset(tmp_path / "out", split) for split in ("train", "test")]
    empty, full = sorted(parts, key=len)
    assert (len(empty), len(full)) == (0, 1)
    assert (list(empty), empty[:], list(empty.batches(3))) == ([], [], [])


@given(st.integers(0, 700), st.integers(-3, 3), st.integers(0, 20))
def test_every_order_is_a_permutation(count: int, seed: int, block: int) -> None:
    from recordmill.transforms.rows.open_dataset import row_order

    order = row_order(count, seed, 0, block=block)
    again = row_order(count, seed, 0, block=block)
    assert sorted(order(0, count).tolist()) == list(range(count))
    assert order(0, count).tolist() == again(0, count).tolist()
    if count > 100:
        other = row_order(count, seed, 1, block=block)
        assert order(0, count).tolist() != other(0, count).tolist()


def test_in_a_store_rows_come_by_few_requests(
    flaky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = flaky.direct.url
    options = flaky.direct.options.to_dict()
    given_options = [
        x for n, v in options.items() for x in ("--storage-option", f"output:{n}={v}")
    ]
    ran = recordmill("convert", "csv", IRIS, place, "--shards", 2, *given_options)
    assert ran.status == 0, ran.err
    expected = list(read_rows(place, storage=options))
    data = open_dataset(place, storage=flaky.options.to_dict())
    numbers = [149, 3, 77, 3, 0]
    assert keys_of(data.__getitems__(numbers)) == keys_of(expected[n] for n in numbers)
    before = flaky.proxy.requests
    data.take(numbers)
    assert flaky.proxy.requests - before == 2  # one for each shard
    monkeypatch.setattr("recordmill.transforms.dataset.reader._GAP_BYTES", 0)
    before, numbers = flaky.proxy.requests, [70, 9, 2, 140, 1, 70, 71, 2]
    assert keys_of(data.__getitems__(numbers)) == keys_of(expected[n] for n in numbers)
    assert flaky.proxy.requests - before == 4  # 1 and 2, 9, 70 and 71, 140
    batches = list(data.batches(50, seed=3))
    found = sorted(value for b in batches for value in b["petal_length_cm"].to_pylist())
    assert found == sorted(row["petal_length_cm"] for row in expected)
