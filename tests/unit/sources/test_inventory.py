"""The inventory is a list of files that takes a fourth of their memory as objects."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
from content_tools import dump_inputs
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.job import JobSpec
from recordmill.transforms.commit.inputs import parse_inputs
from recordmill.transforms.file_content import Checksums, checksums_in, parse_checksums
from recordmill.transforms.inventory import BATCH_FILES, NO_FILES, Inventory
from recordmill.transforms.sources.listing import list_inputs

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
FILES = st.lists(
    st.builds(InputFile, TEXT, TEXT, st.integers(0, 9), TEXT, TEXT, TEXT), max_size=9
)
MOST_BYTES = 100  # of one file, beside its names


@given(FILES, st.integers(-10, 10), st.integers(-10, 10))
def test_it_is_a_list_of_files(files: list[InputFile], start: int, stop: int) -> None:
    found = Inventory.from_files(files)
    assert list(found) == files
    assert found == files
    assert files == found
    assert found[start:stop] == files[start:stop]
    assert [found[at] for at in range(-len(files), len(files))] == [*files, *files]
    assert found + found[:1] == files + files[:1]
    assert found.num_bytes == sum(file.size for file in files)
    assert pickle.loads(pickle.dumps(found)) == files
    assert found.folders.to_pylist() == [file.path.rpartition("/")[0] for file in files]
    assert found.unreadable == [file for file in files if file.problem]


def test_many_files_keep_their_order_and_take_little(tmp_path: Path) -> None:
    """More than one batch: as they are listed, and as a dataset keeps them."""
    number = BATCH_FILES + 5
    files = [
        InputFile(
            f"class-{n % 7}/{n:07d}.png", f"/in/class-{n % 7}/{n:07d}.png", n, "v"
        )
        for n in range(number)
    ]
    found = Inventory.from_files(files)
    assert found == files
    assert found.table.nbytes / number < MOST_BYTES
    job_of = parse_inputs(dump_inputs("ff", _job(), found), "x")
    assert [path for path, _ in job_of.files] == [file.path for file in files]
    assert job_of.files.table.nbytes / number < MOST_BYTES
    before = pa.total_allocated_bytes()
    shared = found[5:-5]
    assert len(shared) == number - 10
    assert pa.total_allocated_bytes() - before < 10_000


def _job() -> JobSpec:
    return JobSpec(source="images", name="d")


def test_links_of_one_folder_count_once(tmp_path: Path) -> None:
    for name in ("b/1.csv", "a/2.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n")
    inputs = [str(tmp_path / "b"), str(tmp_path), str(tmp_path / "a" / "2.csv")]
    root, found = list_inputs(inputs)
    assert root == str(tmp_path)
    assert [(file.path, file.given_folder) for file in found] == [
        ("b/1.csv", "b"),
        ("a/2.csv", ""),
    ]
    assert not found.table["uri"].drop_null()
    assert NO_FILES[:1] == []


def test_checksums_are_columns() -> None:
    parts = [FileChecksum(f'"{n}\u00e4\n', n, n + 9, n << 12) for n in range(70_000)]
    kept = Checksums(parts)
    assert len(kept) == len(parts)
    data = kept.dump()
    assert list(kept) == list(checksums_in(parse_checksums(data))) == parts
    assert len(data) / len(parts) < MOST_BYTES


def test_slices_with_a_step_and_paths_that_repeat() -> None:
    files = [InputFile(f"{n}.csv", f"/in/{n}.csv", n) for n in range(10)]
    listed = Inventory.from_files(files)
    assert list(listed[::3]) == files[::3]
    assert list(listed[8:2:-2]) == files[8:2:-2]
    assert listed[np.int64(4)] == files[4]
    again = files[2]._replace(size=77)
    both = Inventory.from_files([*files, again])
    assert list(both.unique_paths()) == [*files[:2], again, *files[3:]]
    assert listed.unique_paths() is listed
