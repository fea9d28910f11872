"""A function of one's own: its text is found and run; which row each row comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.job import MapFunction, load_map
from recordmill.transforms.sources.map import UserFunction, load_function, same_values


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
        (
            "import nowhere_at_all",
            "'nowhere_at_all'. Install the modules that it imports",
        ),
        ("print(__file__)", "is run without the files next to it"),
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
    with pytest.raises(UsageError, match="the source of the module differs here"):
        load_function(named)
    with pytest.raises(UsageError, match="has no source file"):
        load_map("sys:f", read)
    with pytest.raises(UsageError, match="cannot be imported here: ModuleNotFound"):
        load_map("nowhere_at_all.map:f", read)


Function = Callable[[pa.RecordBatch], Any]


def ten() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(range(10), pa.int64())})


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=40))
def test_each_row_alone_gives_what_all_give_together(numbers: list[int]) -> None:
    """A row becomes as many copies as its number says; for -1 the function raises."""
    batch = pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})

    def copies(part: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        wanted = part["n"].to_numpy()
        if (wanted < 0).any():
            raise ValueError("below zero")
        rows = np.repeat(np.arange(part.num_rows), wanted)
        return part.take(pa.array(rows)), rows

    made = UserFunction(copies, "file.py:copies")(batch)
    expected = [row for row, n in enumerate(numbers) for _ in range(max(n, 0))]
    assert made.input_rows.tolist() == expected
    bad = [row for row, n in enumerate(numbers) if n < 0]
    assert [row for row, _ in made.invalid_rows] == bad
    assert {why for _, why in made.invalid_rows} <= {
        "map copies: ValueError: below zero"
    }
    if made.batch.num_columns:
        assert made.batch["n"].to_pylist() == [numbers[row] for row in expected]
    assert made.num_dropped(len(numbers)) == numbers.count(0)
    assert made.num_added == sum(n - 1 for n in numbers if n > 1)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda batch: None, "returned nothing, expected a pyarrow.RecordBatch"),
        (lambda batch: batch.to_pydict(), "returned a dict, expected"),
        (lambda batch: batch.slice(1), "got 10 rows and returned 9. Return a second"),
        (lambda b: (b, [True] * 10), r"found an array of bool, shape \(10,\)"),
        (lambda b: (b, list(range(9))), r"found an array of int64, shape \(9,\)"),
        (lambda b: (b, [*range(9), 10]), "found row 10, of the 10 that it got"),
        (lambda b: (b, [*range(9), 0]), "found rows not in order"),
        (lambda b: (b, pa.array([None] * 10)), "expected ascending row numbers"),
        (lambda b: (b, [[1], [2, 3]]), "are not an array"),
    ],
)
def test_what_it_returns_is_checked(function: Function, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        UserFunction(function, "file.py:f")(ten())


def test_a_filter_may_leave_nothing() -> None:
    made = UserFunction(lambda batch: (batch.slice(0, 0), []), "f")(ten())
    assert (made.batch.num_rows, made.num_dropped(10), made.num_added) == (0, 10, 0)


def test_parts_with_other_types_or_columns_are_told() -> None:
    def by_value(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch["n"].to_pylist()
        if 5 in numbers and len(numbers) > 1:
            raise ValueError
        kind = pa.int64() if max(numbers) < 5 else pa.float64()
        return pa.RecordBatch.from_pydict({"n": batch["n"].cast(kind)})

    with pytest.raises(SchemaError, match="column 'n' is int64 for some rows and doub"):
        UserFunction(by_value, "f")(ten())

    def sometimes(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows == 10:
            raise ValueError
        name = "n" if batch["n"][0].as_py() else "m"
        return batch.rename_columns([name])

    with pytest.raises(SchemaError, match="returns column 'm' for some rows only"):
        UserFunction(sometimes, "f")(ten())


def test_an_import_that_fails_is_not_the_row_s_fault() -> None:
    def importing(batch: pa.RecordBatch) -> None:
        import nowhere_to_be_found  # noqa: F401

    with pytest.raises(UsageError, match="No module named 'nowhere_to_be_found'"):
        UserFunction(importing, "f")(ten())


def centred(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch["n"].to_numpy().astype(float)
    return pa.RecordBatch.from_pydict({"n": values - values.mean()})


def every_second(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
    rows = np.arange(0, batch.num_rows, 2)
    return batch.take(pa.array(rows)), rows


def drawn(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = np.random.default_rng().integers(0, 1 << 60, batch.num_rows)
    return pa.RecordBatch.from_pydict({"n": values})


def squared(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch["n"].to_numpy()
    lists = pa.array([[float(n)] * n for n in values], pa.list_(pa.float64()))
    return pa.RecordBatch.from_pydict({"n": values**2, "lists": lists})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (centred, "other values in column 'n'"),
        (every_second, "other rows"),
        (drawn, "other values in column 'n'"),
    ],
)
def test_a_row_that_depends_on_its_batch_is_told(function: Function, said: str) -> None:
    batch = ten().slice(0, 6)  # halves of 3 rows
    with pytest.raises(UsageError, match=f"returns {said} for the same rows"):
        UserFunction(function, "f").try_on_rows(batch)


def test_rows_by_themselves_pass_the_check() -> None:
    for batch in (ten(), ten().slice(0, 1)):
        UserFunction(squared, "f").try_on_rows(batch)


def test_the_same_values() -> None:
    one = pa.array([[1.0, None], None, []])
    assert same_values(one, pa.array([[1.0 + 1e-9, None], None, []]))
    assert not same_values(one, pa.array([[1.1, None], None, []]))
    assert not same_values(one, pa.array([[1.0], [None], []]))
    assert not same_values(one, pa.array([[1.0, None], [], []]))
    assert same_values(pa.array([float("nan")]), pa.array([float("nan")]))
    assert same_values(pa.nulls(2), pa.array([None, None], pa.int64()))
    assert not same_values(pa.nulls(1), pa.array([1]))
    assert same_values(pa.array([{"a": 1.0}]), pa.array([{"a": 1.0}]))
    assert not same_values(pa.array(["a"]), pa.array(["b"]))
