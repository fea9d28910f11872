"""Finding a person's function: its text, its checksum, and running it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import MapFunction, load_map
from recordmill.transforms.sources.map import load_function


def read(path: str) -> bytes:
    return Path(path).read_bytes()


@pytest.mark.parametrize("given", ["tokenise", "a b:f", "a.py", "a.py:f()", ":f", "a:"])
def test_a_name_is_a_module_or_file_and_a_function(given: str) -> None:
    with pytest.raises(UsageError, match=r"expected FILE\.py:FUNCTION or MODULE:FUNC"):
        load_map(given, read)


def test_the_text_counts_not_where_it_lies(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("def f(batch): return batch\n")
    one, other = (load_map(f"{tmp_path / n}:f", read) for n in ("a.py", "b.py"))
    assert one.checksum == other.checksum
    assert (one.label, other.label) == ("a.py:f", "b.py:f")
    assert one.text not in repr(one)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"def f(:", r"is not valid Python: .*line 1"),
        (b"# \xe9", r"is not text in UTF-8 \(byte 2\)"),
    ],
)
def test_a_file_has_to_be_python(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.py").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        load_map(f"{tmp_path / 'a.py'}:f", read)


def test_a_file_s_text_is_run_once_and_without_its_folder() -> None:
    text = "import sys\nsys.map_runs = getattr(sys, 'map_runs', 0) + 1\nf = len\n"
    named = MapFunction(function="f", text=text, file="a.py")
    try:
        assert load_function(named) is load_function(named)
        assert sys.map_runs == 1  # type: ignore[attr-defined]
    finally:
        del sys.map_runs  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def g(batch): pass", "has no function 'f'; expected one. It has g"),
        ("f = 3", "has no function 'f'; expected one. It has none"),
        ("f = 1 / 0", "cannot be run: ZeroDivisionError: division by zero"),
        ("import nowhere_at_all", "'nowhere_at_all'. Install what it imports"),
        ("print(__file__)", "what lies beside it is not there"),
    ],
)
def test_a_file_that_cannot_be_run(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_function(MapFunction(function="f", text=text, file="a.py"))


def test_a_module_is_imported_and_has_to_be_the_same_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a_map_of_tests.py"
    path.write_text("def f(batch): return batch\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match=r"name its file: ./a_map_of_tests.py:FUNCTION"
    ):
        load_map("a_map_of_tests:f", read)
    monkeypatch.syspath_prepend(tmp_path)
    named = load_map("a_map_of_tests:f", read)
    assert load_function(named)("x") == "x"
    path.write_text("def f(batch): return None\n")
    with pytest.raises(UsageError, match="has another text here"):
        load_function(named)
    with pytest.raises(UsageError, match="has no text"):
        load_map("sys:f", read)
    with pytest.raises(UsageError, match="cannot be imported here: ModuleNotFound"):
        load_map("nowhere_at_all.map:f", read)
