"""Globs: as Python's glob has them, the same in folders and in stores; what they leave out."""

from __future__ import annotations

import glob
import itertools
import uuid
from pathlib import Path

import fsspec
import pytest
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.globs import MAX_ALTERNATIVES, expand_braces
from recordmill.transforms.sources.listing import NamedFile, exclude_files, list_inputs

FILES = (
    *("a", "ab.csv", "b/a", "b/ab.csv", "b/b/a", "c/a/b/ab.csv", "c/b/c.csv"),
    *("c/.h/a", ".h", "c.csv/a", "é/[a]/b"),
)
PARTS = ("a", "b", "c", "*", "?", "[ab]", "[!a]", "*.csv", "**", "a*", "c*", ".*")
BRACES = {"{a,b}": ("a", "b"), "{c.csv,b*,*}": ("c.csv", "b*", "*"), "é": ("é",)}
patterns = st.lists(st.sampled_from((*PARTS, *BRACES)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The same files in a folder and in a store."""
    folder = tmp_path_factory.mktemp("globs")
    url = f"memory://{uuid.uuid4().hex}"
    system = fsspec.filesystem("memory")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        system.pipe_file(f"{url}/{name}", b"")
    return folder, url


def expected(folder: Path, parts: list[str]) -> set[str]:
    """The files that Python's glob finds, or finds the folder of."""
    found: set[str] = set()
    for each in itertools.product(*(BRACES.get(part, (part,)) for part in parts)):
        # What is named with a dot is searched for hidden files, too.
        hidden = any(part[0] == "." for part in each)
        pattern = "/".join(each)
        for match in glob.glob(pattern, root_dir=folder, recursive=True):  # noqa: PTH207
            path = folder / match
            if match.endswith("/") and path.is_file():
                continue  # a file is no folder, though Python finds a/** in the file a
            below = [path] if path.is_file() else path.rglob("*")
            names = {p.relative_to(path).as_posix() for p in below if p.is_file()}
            if not hidden or "**" not in each:
                names = {
                    n for n in names if not any(x[:1] == "." for x in n.split("/"))
                } | (names & {"."})
            found |= {(path / name).relative_to(folder).as_posix() for name in names}
    return found


def listed(root: str, pattern: str) -> set[str]:
    try:
        _, files = list_inputs([f"{root}/{pattern}"])
    except InputError:
        return set()
    return {file.uri.removeprefix(f"{root}/") for file in files}


@given(patterns.filter(lambda parts: ".*" not in parts))
@example(["a", "**"])
@examples(200)
def test_as_python_finds_them(tree: tuple[Path, str], parts: list[str]) -> None:
    folder, url = tree
    found = listed(str(folder), "/".join(parts))
    assert found == expected(folder, parts)
    assert listed(url, "/".join(parts)) == found


@given(patterns)
@examples(100)
def test_a_store_is_searched_as_a_folder_is(
    tree: tuple[Path, str], parts: list[str]
) -> None:
    folder, url = tree
    pattern = "/".join(parts)
    assert listed(url, pattern) == listed(str(folder), pattern)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("c/*.tsv", "c holds a/, b/"),
        ("c/*/none/**", "c holds a/, b/"),
        ("none/*.csv", " holds "),
        ("c/a/x.csv", "c/a holds b/"),
    ],
)
def test_what_is_there_instead_is_told(
    tree: tuple[Path, str], pattern: str, told: str
) -> None:
    for root in map(str, tree):
        with pytest.raises(InputError, match="no file matches; ") as error:
            list_inputs([f"{root}/{pattern}"])
        assert told in str(error.value)


def test_braces() -> None:
    wanted = "a.c a. b1.c b1. b2.c b2."
    assert expand_braces("{a,b{1,2}}.{c,}") == wanted.split()
    assert expand_braces("{a}{}") == ["{a}{}"]
    with pytest.raises(InputError, match=f"more than {MAX_ALTERNATIVES:,} globs"):
        expand_braces("{a,b}" * 30)


def test_each_folder_is_read_once(tmp_path: Path) -> None:
    """Under its own name, if it has one below the input; else under the first link."""
    real, far = tmp_path / "in" / "real", tmp_path / "far"
    for folder in (real / "sub", far):
        folder.mkdir(parents=True)
        (folder / "a").touch()
    above = tmp_path / "in"
    (above / "alias").symlink_to(real)
    (above / "real" / "back").symlink_to(above)
    (above / "y").symlink_to(far)
    (above / "z").symlink_to(far)
    (far / "up").symlink_to(above)
    for pattern, root in (("", above), ("/*", above), ("/**/a", above)):
        notes: list[str] = []
        found, files = list_inputs([f"{above}{pattern}"], notes=notes)
        assert found == str(root)
        assert [file.path for file in files] == ["real/sub/a", "y/a"]
        assert sorted(notes) == [
            f"{above}/alias: a link to {real}, skipped: it is read as {real}",
            f"{above}/real/back: a link back to {above}, a folder above it, not followed",
            f"{above}/y/up: a link back to {above}, a folder above it, not followed",
            f"{above}/z: a link to {far}, skipped: it is read as {above}/y",
        ]


PATHS = [
    *("a.csv", "b/a.csv", "b/c/a.csv", "b/c/d.txt", "b/thumbs/1.jpg"),
    *("labels.csv", "thumbs/1.jpg", "thumbs.jpg", "in.zip!/b/x.jpg"),
]
LISTED = Inventory.from_files(InputFile(path, f"/in/{path}", 1, "1") for path in PATHS)


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("thumbs", {"b/thumbs/1.jpg", "thumbs/1.jpg"}),
        ("thumbs/", {"b/thumbs/1.jpg", "thumbs/1.jpg"}),
        ("/thumbs", {"thumbs/1.jpg"}),
        ("b/thumbs", {"b/thumbs/1.jpg"}),
        ("thumbs/*", {"thumbs/1.jpg"}),
        ("**/thumbs/*", {"b/thumbs/1.jpg", "thumbs/1.jpg"}),
        ("*.csv", {"a.csv", "b/a.csv", "b/c/a.csv"}),
        ("/*.csv", {"a.csv"}),
        ("b/*/a.csv", {"b/c/a.csv"}),
        ("{c,*.zip!}", {"b/c/a.csv", "b/c/d.txt", "in.zip!/b/x.jpg"}),
    ],
)
def test_what_a_pattern_leaves_out(pattern: str, left: set[str]) -> None:
    """A file that an option names stays."""
    named = [NamedFile("label_table", "labels.csv")]
    files, left_out, found = exclude_files(LISTED, [pattern, "nothing"], named)
    assert {file.path for file in files} == {*PATHS} - left
    assert left_out == left
    assert found.fields[0][1].startswith(f"{len(left)} file")
    (warning,) = found.warnings
    assert warning.message.startswith(
        "`exclude` nothing: no input file or folder has such a name"
    )


def test_no_file_is_left() -> None:
    with pytest.raises(InputError, match=r"all input files \(9 files, such as a.csv"):
        exclude_files(LISTED, ["*"])
    assert exclude_files(LISTED, [])[0] == LISTED
