"""What pydantic finds is told in this project's words."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mutations import mutated
from pydantic_core import ErrorDetails, ValidationError
from pydantic_core._pydantic_core import list_all_errors

from recordmill.schemas.declared import describe_mismatch
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.job_file import load_job
from recordmill.schemas.schema_file import load_schema
from recordmill.transforms.sources.registry import InstalledFormats

THEIRS = re.compile(
    r"Input should|[Ii]nput_(?:value|type|url)|pydantic|[Vv]alidation|instance of|Value error"
)
# Only for models that are made from Python objects, or with types that ours do not have.
NOT_OURS = re.compile(
    r"^(is_|dataclass_exact|callable|arguments|.*_argument|.*_schema|named_tuple|default_factory)"
)


def details() -> list[ErrorDetails]:
    found = []
    for known in list_all_errors():
        if NOT_OURS.match(known["type"]):
            continue
        context: Any = known["example_context"] or {}
        line: Any = {"type": known["type"], "loc": ("a",), "input": 7, "ctx": context}
        error = ValidationError.from_exception_data("Model", [line])
        found += error.errors(include_url=False)
    return found


@pytest.mark.parametrize("detail", details(), ids=lambda detail: detail["type"])
def test_every_kind_of_error_has_words(detail: ErrorDetails) -> None:
    told = describe_mismatch(detail)
    assert not THEIRS.search(told), told
    assert told[0].islower() or detail["type"] == "value_error"


JOB = {
    "source": "csv",
    "inputs": ["raw/*.csv"],
    "output": "out/x",
    "name": "x",
    "version": "1.0.0",
    "splits": {"train": 0.9, "test": 0.1},
    "shards": 2,
    "max_rejects": "1%",
    "storage": {"input": {"anon": True}},
    "schema": {"features": {"a": "int64", "b": {"dtype": "float32", "shape": [2]}}},
    "csv": {},
    "params": {"n": 1},
    "beam": ["--runner=DirectRunner"],
}


def load(data: bytes) -> None:
    today = date(2026, 11, 20)
    load_job(data, "job.yaml", {}, today, lambda uri: b"", InstalledFormats())


@given(mutated(JOB))
def test_job_file(data: bytes) -> None:
    assert_read_or_told(lambda: load(data), "job.yaml")


@given(mutated(JOB["schema"]))
@example(b'{"features": {"a": {"dtype": "int64", "shape": ["\\ud800"]}}}')
def test_schema_file(data: bytes) -> None:
    assert_read_or_told(lambda: load_schema(data, "flowers.yaml"), "flowers.yaml")


def assert_read_or_told(read: Any, file: str) -> None:
    try:
        read()
    except RecordmillError as error:
        message = str(error)
    else:
        return
    assert file in message or message.startswith("/")  # the schema file it names
    assert not THEIRS.search(message), message


@given(st.integers() | st.floats() | st.text() | st.none())
def test_what_was_found_is_shown_whatever_it_is(value: Any) -> None:
    line: Any = {"type": "int_type", "loc": ("a",), "input": value}
    (detail,) = ValidationError.from_exception_data("Model", [line]).errors()
    assert describe_mismatch(detail).startswith("expected a whole number, found ")


def test_an_integer_of_thousands_of_digits() -> None:
    data = json.dumps({**JOB, "shards": "SHARDS"}).replace('"SHARDS"', "9" * 5000)
    with pytest.raises(RecordmillError, match=r"job\.yaml"):
        load(data.encode())
