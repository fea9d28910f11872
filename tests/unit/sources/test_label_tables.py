"""What tables say of images: paths, cells of labels, classes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.inventory import NO_FILES, Inventory
from recordmill.transforms.sources.images.annotations import (
    POSITION,
    PROBLEM,
    RAW,
    Annotations,
)
from recordmill.transforms.sources.images.find import sort_classes
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import (
    ImagesSource,
    encode_references,
    parse_references,
)
from recordmill.transforms.sources.images.tables import (
    FEATURE,
    LABEL,
    LabelMap,
    label_cells,
    match_paths,
    read_label_map,
)
from recordmill.transforms.sources.listing import list_inputs


def images(*paths: str, root: str = "/data/in/", below: str = "") -> Inventory:
    return Inventory.from_files(
        InputFile(path, root + path, 1, given_folder=below) for path in paths
    )


@pytest.mark.parametrize(
    ("table", "named", "way"),
    [
        ("/data/in/t.csv", "a/1.jpg", "relative to the folder of the table"),
        ("/data/in/a/t.csv", "1.jpg", "relative to the folder of the table"),
        ("/data/t.csv", "in/a/1.jpg", "relative to the folder of the table"),
        ("/else/t.csv", "a/1.jpg", "relative to the input folder"),
        ("/else/t.csv", "in/a/1.jpg", "relative to the folder above the input"),
        ("/else/t.csv", "1.jpg", "relative to the folder of the files"),
        ("/else/t.csv", "./a/1.jpg ", "relative to the input folder"),
        ("/else/t.csv", "/data/in/a/1.jpg", "relative to the input folder"),
        ("/else/t.csv", "a/1", "relative to the input folder, without their endings"),
    ],
)
def test_ways_to_read_paths(table: str, named: str, way: str) -> None:
    files = images("a/0.jpg", "a/1.jpg", below="a")
    found = match_paths(pa.array([named, None, "no"]), files, "/data/in/", table)
    assert (found[0].tolist(), found[1]) == ([1, -1, -1], way)


def test_names_of_files_stand_for_them_only_where_all_differ() -> None:
    names = pa.array(["1.jpg"])
    files = images("a/1.jpg", "b/2.jpg")
    found = match_paths(names, files, "/data/in/", "/else/t.csv")
    assert (found[0].tolist(), found[1]) == ([0], "the names of the files")
    same = images("a/1.jpg", "b/1.jpg")
    for files, name in ((same, "1.jpg"), (images("1.jpg", "1.png"), "1")):
        found = match_paths(pa.array([name]), files, "/data/in/", "/else/t.csv")
        assert found[0].tolist() == [-1]


@examples(50)
@example(paths=["a/.a"], named=["a/"])  # no ending: the name of a hidden file
@given(
    paths=st.lists(st.text("ab./é", min_size=1), min_size=1, unique=True),
    named=st.lists(st.text("ab./é") | st.none()),
)
def test_a_path_names_the_image_that_has_it(
    paths: list[str], named: list[str | None]
) -> None:
    """Whatever else is taken for a match, where all rows are paths they are these."""
    files = images(*(path.strip("/.") + "x" for path in paths))
    known = list(dict.fromkeys(file.path for file in files))
    files = images(*known)
    rows = [*known, *[name for name in named if name in known]]
    where = files, "/data/in/", "/data/in/t"
    found, _ = match_paths(pa.array(rows, pa.string()), *where)
    assert [known[index] for index in found.tolist()] == rows
    loose, _ = match_paths(pa.array(named, pa.string()), *where)
    for name, index in zip(named, loose.tolist(), strict=True):
        if index >= 0:
            assert name is not None
            told = PurePosixPath(name.removeprefix("/data/in/").strip()).name
            assert known[index].rpartition("/")[2].startswith(told.rstrip("."))


_TEXTS = st.text("ab| ", max_size=6)


@examples(200)
@given(cells=st.lists(_TEXTS | st.none()))
def test_cells_of_several_labels(cells: list[str | None]) -> None:
    found = label_cells(pa.array(cells, pa.string()), "|").to_pylist()
    assert found == [
        [part.strip() for part in cell.split("|") if part.strip()]
        if cell and cell.strip()
        else None
        for cell in cells
    ]


@examples(100)
@given(rows=st.lists(st.lists(st.integers(0, 9) | st.none()) | st.none()))
def test_lists_of_labels(rows: list[list[int | None] | None]) -> None:
    found = label_cells(pa.array(rows, pa.list_(pa.int64())), "").to_pylist()
    assert found == [
        row if row is None else [str(value) for value in row if value is not None]
        for row in rows
    ]


@pytest.mark.parametrize(
    ("name", "text", "classes", "class_of"),
    [
        ("map.txt", "dog\ncat\n\n", "dog cat", {"dog": "dog", "cat": "cat"}),
        ("map.csv", "id,name\n2,dog\n1,cat\n", "cat dog", {"2": "dog", "cat": "cat"}),
        ("map.tsv", "ID\tName\n0\tdog\n1\tcat\n", "dog cat", {"1": "cat"}),
    ],
)
def test_files_of_classes(
    tmp_path: Path, name: str, text: str, classes: str, class_of: dict[str, str]
) -> None:
    found = label_map_of(tmp_path / name, text)
    assert found.classes == tuple(classes.split())
    assert {label: found.class_by_label[label] for label in class_of} == class_of
    assert bool(found.first_renumbering) == ("2,dog" in text)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("map.txt", "dog\ndog\n", "class name 'dog' is given twice"),
        ("map.txt", "\n", "has no class names"),
        ("map.json", '["dog"]', "is JSON; expected a name in each line"),
        ("map.csv", "a,b\n1,2\n", "has the columns a,b; expected"),
        ("map.csv", "id,name\n-1,x\n", "class 'x' has the number '-1'"),
        ("map.csv", "id,name\n1,x\n1,y\n", "class 'y' has the number '1'"),
        ("map.csv", "label,class\na,x\n", "has the columns label,class; expected"),
    ],
)
def test_files_that_say_no_classes(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    with pytest.raises(InputError, match=f"{name}: {told}"):
        label_map_of(tmp_path / name, text)


def label_map_of(path: Path, text: str) -> LabelMap:
    path.write_text(text)
    file = InputFile(path.name, str(path), path.stat().st_size)
    found = read_label_map(file, NO_OPTIONS)
    assert sum(each.stop - each.start for each in found.checksums) == file.size
    return found


def test_numbers_are_in_their_own_order() -> None:
    assert sort_classes(["10", "9", "-1"]) == ("-1", "9", "10")
    assert sort_classes(["10", "9", "x"]) == ("10", "9", "x")


_VALUES = st.none() | st.lists(st.floats(width=64), max_size=3)


@examples(50)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.sampled_from("abc")), st.none() | st.text(), _VALUES)
    )
)
def test_notes_travel_with_references(
    rows: list[tuple[list[str], str | None, list[float] | None]],
) -> None:
    labels, texts, boxes = ([row[at] for row in rows] for at in range(3))
    table = pa.table(
        {
            LABEL: pa.array(labels, pa.list_(pa.string())),
            PROBLEM: pa.array([""] * len(rows), pa.string()),
            POSITION: pa.array([0] * len(rows), pa.int64()),
            RAW: pa.array([None] * len(rows), pa.binary()),
            f"{FEATURE}t": pa.array(texts, pa.string()),
            f"{FEATURE}b": pa.array(boxes, pa.list_(pa.float64())),
        }
    )
    annotations = Annotations(NO_FILES, table, classes=("a", "b", "c"))
    listed = annotations.reference_columns(table)
    files = [InputFile(f"{n}.jpg", f"{n}.jpg", n) for n in range(len(rows))]
    written = encode_references(files, table, listed, annotations.to_json_cells)
    parsed = parse_references(pa.array(written, pa.binary()))
    assert [each.path for each in parsed] == [file.path for file in files]
    found = annotations.build_columns([each.cells for each in parsed])
    for name in ("label", "t"):
        assert found[name].equals(listed[name])
    assert repr(found["b"].to_pylist()) == repr(boxes)
    assert found["text"].to_pylist() == labels


def test_every_file_that_options_name_is_summed(tmp_path: Path) -> None:
    texts = {
        "1.jpg": "",
        "t.csv": "path,label\n1.jpg,a\n",
        "l.txt": "1.jpg",
        "m.txt": "a",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    _, files = list_inputs([str(tmp_path)])
    options = ImagesOptions(
        label_table="t.csv", split_lists="a=l.txt", label_map="m.txt"
    )
    found = ImagesSource(options).prepare(files).checksums_of_prepare()
    assert sorted(each.path for each in found) == ["l.txt", "m.txt", "t.csv"]
