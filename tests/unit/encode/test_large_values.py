"""Records around values that are not copied: the same bytes as records in one piece."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.job import JobSpec
from recordmill.transforms.arrow import (
    has_views,
    viewed_values,
    views_at,
    views_of,
    without_views,
)
from recordmill.transforms.encode.waiting_rows import RecordWindow, payloads_of
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tasks.frame_records import frame_around, frame_rows
from recordmill.transforms.tfrecord import crc32c

JOB = JobSpec(source="images", name="a")
# Around the limits of Arrow's short views and of varints of one and two bytes.
SIZES = [12, 13, 14, 90, 100, 110, 127, 128, 16_383, 16_384, 20_000]


def image(number: int, size: int) -> bytes:
    return (b"%d image " % number * size)[:size]


IMAGES = st.lists(st.sampled_from(SIZES), max_size=5).map(
    lambda sizes: [image(number, size) for number, size in enumerate(sizes)]
)


def schema_of(name: str, dtype: str = "bytes") -> Schema:
    """Features before and behind the image, by their names."""
    kept = FeatureSpec(name, Kind.BYTES, "image", dtype, content=Content.IMAGE)
    text = FeatureSpec("m", Kind.BYTES, dtype="string")
    return Schema((kept, text, FeatureSpec("n", Kind.INT64)))


def batch_of(images: pa.Array) -> pa.RecordBatch:
    rows = range(len(images))
    texts = [None if row == 1 else "x" * 50 * row for row in rows]
    return pa.RecordBatch.from_pydict(
        {
            "image": images,
            "m": pa.array(texts, pa.string()),
            "n": pa.array([10**row for row in rows], pa.int64()),
        }
    )


@given(IMAGES, st.sampled_from(["a", "mm", "z"]), st.integers(0, 3))
def test_bytes_are_those_of_joined_records(
    images: list[bytes], name: str, start: int
) -> None:
    schema = schema_of(name)
    viewed = batch_of(views_of(images)).slice(start)
    copied = batch_of(pa.array(images, pa.binary())).slice(start)
    assert without_views(viewed).equals(copied)
    found = frame_around(viewed, schema, JOB)
    known = frame_around(viewed, schema, JOB, values=images[start:])
    assert (found is None) == (known is None)
    (joined,) = frame_rows(copied, schema, JOB)
    if not (len(viewed) and has_views(viewed["image"])):
        assert found is None
        return
    records = payloads_of(joined.rows)
    whole = RecordWindow.from_records(records)
    for window in (found, known, whole):
        assert window is not None
        assert window.join_records().equals(records)
        assert b"".join(window.iterate_pieces()) == b"".join(whole.iterate_pieces())
        assert window.crc32c_after(7) == whole.crc32c_after(7)
        assert window.lengths.tolist() == whole.lengths.tolist()
        assert len(window) == len(records)


def test_views_of_values_in_buffers() -> None:
    """Of any length: short ones stand in the view itself."""
    values = [image(number, number * 5 % 17) for number in range(40)]
    order = [number * 7 % 40 for number in range(40)]
    halves = [b"".join(values[:20]), b"".join(values[20:])]
    starts = [len(b"".join(values[number // 20 * 20 : number])) for number in order]
    views = views_at(
        [pa.py_buffer(half) for half in halves],
        np.array([number // 20 for number in order]),
        np.array(starts),
        np.array([len(values[number]) for number in order]),
    )
    assert views.cast(pa.binary()).to_pylist() == [values[number] for number in order]
    none = np.zeros(0, np.int64)
    assert len(views_at([], none, none, none)) == 0


@given(IMAGES)
def test_views(images: list[bytes]) -> None:
    views = views_of(images)
    views.validate(full=True)
    assert views.to_pylist() == images
    assert has_views(views) == bool(images and min(map(len, images)) > 12)


def test_views_that_arrow_made() -> None:
    """Short values stand in the item itself, others share a buffer."""
    values = [b"", b"short", b"x" * 13, b"y" * 14]
    array = pa.array([*values, b"more"], pa.binary_view()).slice(1, 3)
    assert [bytes(value) for value in viewed_values(array)] == values[1:]


def test_a_value_is_not_copied() -> None:
    data = image(0, 20_000)
    records = frame_around(batch_of(views_of([data])), schema_of("a"), JOB)
    assert records is not None
    (value,) = records.values
    assert value.obj is not None
    assert pa.py_buffer(value).address == pa.py_buffer(data).address


@pytest.mark.parametrize(
    ("schema", "job"),
    [
        (schema_of("a", dtype="string"), JOB),  # has to be read: is it UTF-8?
        (schema_of("a"), JOB.model_copy(update={"payload": "json"})),
        (Schema((*schema_of("a").features, *schema_of("b").features[:1])), JOB),
        (Schema(schema_of("a").features[1:]), JOB),  # the image is left out
    ],
)
def test_not_every_record_is_written_around_a_value(
    schema: Schema, job: JobSpec
) -> None:
    assert frame_around(batch_of(views_of([image(0, 99)])), schema, job) is None


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_shard_of_large_values(tmp_path: Path, compression: str) -> None:
    images = [image(number, size) for number, size in enumerate(SIZES[1:])]
    window = frame_around(batch_of(views_of(images)), schema_of("a"), JOB)
    assert window is not None
    joined = window.join_records()
    one = write_records(tmp_path / "one", [window, joined, window], compression)
    other = write_records(tmp_path / "other", [joined, joined, joined], compression)
    stored = (tmp_path / "one").read_bytes()
    assert one == other
    assert stored == (tmp_path / "other").read_bytes()
    assert one.crc32c == crc32c(stored)
    unpacked = gzip.decompress(stored) if compression == "gzip" else stored
    assert unpacked == b"".join([*window.iterate_pieces()] * 3)
