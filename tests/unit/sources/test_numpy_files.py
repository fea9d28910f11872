"""NumPy's files against numpy.load: any type, order and cut; and what is refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from archive_tools import zip_of
from example_counts import examples
from hypothesis import assume, example, given
from hypothesis.extra import numpy as npst
from source_tools import read
from webdataset_tools import npy

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.arrays.headers import find_numpy
from recordmill.transforms.sources.arrays.source import ArraysSource
from recordmill.transforms.sources.base import Append
from recordmill.transforms.sources.registry import NumpyOptions

PLAIN = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.byte_string_dtypes(max_len=4),
    npst.unicode_string_dtypes(endianness="?", max_len=4),
)
ARRAYS = npst.arrays(
    PLAIN | npst.array_dtypes(PLAIN, min_size=1, max_size=3),
    npst.array_shapes(min_dims=1, max_dims=4, max_side=4),
)


def as_read(value: Any, *, pixels: bool) -> Any:
    """A value of numpy.load as Arrow gives it: arrays flat, pixels as bytes."""
    value = np.asarray(value)
    if pixels:
        return value.tobytes()
    flat = value.reshape(-1)
    if value.dtype.kind == "f":
        flat = flat.astype(np.float64)
    found = flat.tolist()
    return found if value.ndim else found[0]


def expected_rows(array: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    rows = []
    for row in array:
        names = array.dtype.names
        values = {n: row[n] for n in names} if names else {"a": row}
        rows.append(
            {
                name: as_read(
                    value,
                    pixels=np.asarray(value).dtype == np.uint8
                    and np.asarray(value).ndim > 0,
                )
                for name, value in values.items()
            }
        )
    return rows


@examples(300)
@example(
    array=np.array([[["", "0"], ["", ""]]]), fortran=True, packed="npy", range_bytes=1
)
@given(
    array=ARRAYS,
    fortran=st.booleans(),
    packed=st.sampled_from(["npy", "npz", "compressed"]),
    range_bytes=st.integers(1, 200),
)
def test_rows_are_those_of_numpy_load(
    tmp_path_factory: pytest.TempPathFactory,
    array: np.ndarray[Any, Any],
    fortran: bool,
    packed: str,
    range_bytes: int,
) -> None:
    assume("\\ud" not in str(array.tolist()))  # half a character is a reject
    if array.dtype.names and array.ndim > 1:
        array = array.reshape(-1)
    if fortran and packed != "compressed":
        array = np.asfortranarray(array)
    folder = tmp_path_factory.mktemp("npy")
    path = folder / ("a.npy" if packed == "npy" else "x.npz")
    if packed == "npy":
        np.save(path, array)
    else:
        (np.savez if packed == "npz" else np.savez_compressed)(path, a=array)
    reading = read(
        ArraysSource(find_numpy, NumpyOptions(), range_bytes=range_bytes), path
    )
    expected = expected_rows(array)
    assert repr(reading.rows) == repr(expected)  # nan equals nan
    assert reading.rejects == []


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


WRONG: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "objects": ("a.npy", lambda: npy(np.array([{}, 1], object)), "contains Python objects"),
    "times": ("a.npy", lambda: npy(np.array(["2026-01-01"], "M8[s]")), r"Save array\.astype"),
    "complex": ("a.npy", lambda: npy(np.array([1j])), "one array for each part of a complex"),
    "no axis": ("a.npy", lambda: npy(np.array(1)), r"has 0 axes, .*save array\[numpy\.newaxis\]"),
    "empty": ("a.npy", lambda: b"", "begins with nothing"),
    "text": ("a.npy", lambda: b"hello world", "begins with 68 65 6c 6c 6f 20, expected the signature"),
    "two arrays": ("a.npy", lambda: npy(np.arange(3)) + npy(np.arange(3)), r"but the file has 304\. Save each array in a file"),
    "absurd": ("a.npy", lambda: npy(np.arange(3)).replace(b"(3,), }      ", b"(%d,), }" % (1 << 60))[:128], "1152921504606846976 values of 8 bytes, .* The file is cut short"),
    "version": ("a.npy", lambda: b"\x93NUMPY\x09\0" + bytes(20), "version 9 of .npy, expected 1 to 3"),
    "nothing in a row": ("a.npy", lambda: npy(np.empty((3, 0))), r"a row of shape \[0\] has 0 bytes"),
    "no rows": ("a.npy", lambda: npy(np.empty((0, 3))), "1 input file: no file contains a row"),
    "not an array": ("a.npz", lambda: zip_of({"readme.txt": b"no array"}), "'readme.txt' is not an array"),
    "no archive": ("a.npz", lambda: b"PK\3\4" + bytes(40), r"cannot be read as \.npz"),
    "two numbers": ("a.npz", lambda: npz(x=np.arange(3), y=np.arange(4)), r"a\.npz \(x\) has 3 rows, but .*a\.npz \(y\) has 4"),
    "two shapes": ("a.npz", lambda: npz(x_train=np.ones((3, 2)), x_test=np.ones((3, 3))), r"x float64 \[3\], but .* has x float64 \[2\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_rows_is_refused(case: str, tmp_path: Path) -> None:
    name, make, told = WRONG[case]
    (tmp_path / name).write_bytes(make())
    with pytest.raises(InputError, match=told):
        read(ArraysSource(find_numpy, NumpyOptions()), tmp_path)


def test_a_damaged_member_of_an_archive_is_found_by_its_checksum(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.arange(9))
    with zipfile.ZipFile(path) as archive:
        crc = archive.infolist()[0].CRC
    data = path.read_bytes()
    path.write_bytes(data.replace(crc.to_bytes(4, "little"), b"crc!"))
    with pytest.raises(InputError, match="the checksum of the data differs from"):
        read(ArraysSource(find_numpy, NumpyOptions()), path)


def test_names_tell_columns_splits_and_order(tmp_path: Path) -> None:
    for name in ("x_train_0", "x_train_1", "x_test"):
        np.save(tmp_path / f"{name}.npy", np.arange(2) + len(name))
        np.save(tmp_path / f"{name.replace('x', 'labels')}.npy", np.arange(2))
    source = read(ArraysSource(find_numpy, NumpyOptions()), tmp_path).source
    found = [
        (p.split, [a.file.path for a in p.arrays])
        for p in source.array_input.array_groups
    ]
    assert found == [
        ("test", ["labels_test.npy", "x_test.npy"]),
        ("train", ["labels_train_0.npy", "x_train_0.npy"]),
        ("train", ["labels_train_1.npy", "x_train_1.npy"]),
    ]
    assert source.columns().names == ["label", "x"]
    assert set(source.input_splits()) == {"train", "test"}


def test_a_new_column_of_rows_that_were_converted_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((3, 2), np.uint8))
    kept = read(ArraysSource(find_numpy, NumpyOptions()), tmp_path).files
    np.save(tmp_path / "labels.npy", np.arange(3))
    both = read(ArraysSource(find_numpy, NumpyOptions()), tmp_path).files
    new = [file for file in both if file not in kept]
    told = r"labels\.npy: belongs to the rows of .*images\.npy, which were converted"
    with pytest.raises(InputError, match=told):
        ArraysSource(find_numpy, NumpyOptions()).prepare(new, Append(kept, None))
