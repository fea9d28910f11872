"""The one function that names from listings, manifests, jobs and inventories pass."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.errors import OutputRefusedError
from recordmill.schemas.names import UnsafeNameError, check_file_name

# Mostly of the pieces with which paths are climbed.
PIECES = st.sampled_from(
    ["..", ".", "/", "\\", "\0", "a", ".recordmill", "~", "C:", "%2e%2e", "..%2f", " "]
)
NAMES = st.one_of(
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=8).map("/".join),
    st.text(max_size=20),
)


@given(NAMES, st.booleans())
@example("v/1.0.0/.recordmill/../x", False)
@example("..", True)
@example("/etc/passwd", False)
@example("a\\..\\b", False)
def test_a_name_stays_below_its_folder_or_is_refused(name: str, plain: bool) -> None:
    try:
        assert check_file_name(name, plain=plain) == name
    except UnsafeNameError:
        return
    root = "/srv/datasets/pets"
    for joined in (posixpath.join(root, name), str(Path(root, name)), f"{root}/{name}"):
        normal = posixpath.normpath(joined)
        assert normal.startswith(f"{root}/")
        assert normal == joined  # nothing in it is resolved to something else
    assert "\0" not in name
    assert "\\" not in name
    if plain:
        assert Path(root, name).parent == Path(root)


@given(st.lists(st.from_regex(r"[\w. ()\[\]*?-]*\w", fullmatch=True), min_size=1))
def test_an_ordinary_name_is_taken(parts: list[str]) -> None:
    assert check_file_name("/".join(parts)) == "/".join(parts)


def test_the_message_says_where_and_what() -> None:
    with pytest.raises(UnsafeNameError) as caught:
        check_file_name("../x", "s3://bucket/out")
    assert isinstance(caught.value, OutputRefusedError)
    assert str(caught.value) == (
        "s3://bucket/out: name '../x': expected a relative path like a/b"
    )
    with pytest.raises(UnsafeNameError, match="without a folder"):
        check_file_name("a/b", plain=True)
    with pytest.raises(UnsafeNameError, match=r"'a{100}'\.\.\.: "):
        check_file_name("a" * 5000 + "//")
