"""Files that patterns leave out of a listing."""

from __future__ import annotations

import pytest

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources.named_files import NamedFile, exclude_files

PATHS = [
    *("a.csv", "b/a.csv", "b/c/a.csv", "b/c/d.txt", "b/thumbs/1.jpg"),
    *("labels.csv", "thumbs/1.jpg", "thumbs.jpg", "in.zip!/b/x.jpg"),
]
FILES = [InputFile(path, f"/in/{path}", 1, "1") for path in PATHS]


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
    found = exclude_files(FILES, [pattern, "nothing"], named)
    assert {file.path for file in found.files} == {*PATHS} - left
    assert found.facts[0][1].startswith(f"{len(left)} file")
    (warning,) = found.warnings
    assert warning.startswith("`exclude` nothing: no input file has such a name")


def test_no_file_is_left() -> None:
    with pytest.raises(InputError, match=r"all input files \(9 files, such as a.csv"):
        exclude_files(FILES, ["*"])
    assert exclude_files(FILES, []).files is FILES
