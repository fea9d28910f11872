from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from recordmill.schemas.job import (
    JobSpec,
    RejectLimit,
    SplitSpec,
    parse_fraction,
    to_dataset_name,
)
from recordmill.schemas.names import shard_file_name


def job(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"source": "csv", "name": "digits", **fields})


def splits(**fractions: str) -> tuple[SplitSpec, ...]:
    return tuple(SplitSpec(name=n, fraction=f) for n, f in fractions.items())


def test_a_job_comes_back_from_json() -> None:
    spec = job(splits=splits(a="1/3", b="2/3"), max_rejects={"text": "1%"})
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("fractions", "reason"),
    [
        ({"a": "1"}, "all in one"),
        ({"a": "0.8", "b": "0.1", "c": "0.1"}, "no sum of floats"),
        ({"a": "1/3", "b": "1/3", "c": "1/3"}, "exact thirds"),
        ({"a": "2/3", "b": ".25", "c": "1/12"}, "mixed"),
        ({"a-b": "0.50", "_": "1/2"}, "names with signs"),
        ({f"s{n}": "1/255" for n in range(255)}, "as many as may be"),
    ],
)
def test_splits_that_add_up(fractions: dict[str, str], reason: str) -> None:
    assert len(job(splits=splits(**fractions)).splits) == len(fractions), reason


SUM = "the fractions of the splits must add up to 1, so that no row is lost; found "
NAME = "expected a name of letters, digits and '_' that starts with a letter, found "
VERSION = "expected a version like 1.0.0, found "
SPLIT = "expected a split name of letters, digits, '_' and '-', found "
SHARE = "expected a fraction above 0 and at most 1, found "
LIMIT = "expected a count like 10 or a share like 0.5%, found "
THIRDS = dict.fromkeys("abc", "0.3333333")
MANY = {f"s{n}": "1/256" for n in range(256)}

REFUSED = [
    (job, {"splits": splits(a="0.8", b="0.1")}, SUM + "0.8 + 0.1", "too little"),
    (job, {"splits": splits(a="1", b="1/2")}, SUM + "1 + 1/2", "too much"),
    (job, {"splits": splits(**THIRDS)}, SUM + "0.3333333 + 0.3333333 + 0.3333333", "so near to 1 that the sum would read as 1"),
    (job, {"splits": ()}, SUM + "no split", "none"),
    (job, {"splits": splits(a="1/2") * 2}, "split names must differ, found a, a", "the same twice"),
    (job, {"splits": splits(**MANY)}, "expected at most 255 splits, found 256", "a row's split is stored as u8, and the format may add one"),
    (job, {"name": "2024"}, NAME + "'2024'", "starts with a digit"),
    (job, {"name": "größe"}, NAME + "'größe'", "letters of ASCII alone, as TFDS has it"),
    (job, {"version": "1.0"}, VERSION + "'1.0'", "two numbers"),
    (job, {"version": "1.0.0\n"}, VERSION + "'1.0.0\\n'", "newline"),
    *((SplitSpec, {"name": name, "fraction": "1"}, SPLIT + repr(name), "a name") for name in ("", "a b", "a/b", "ä", "a\n")),
    *((SplitSpec, {"name": "a", "fraction": share}, SHARE + share, "out of range") for share in ("0", "0.0", "1.01", "3/2")),
    *((RejectLimit, {"text": text}, LIMIT + repr(text), "no limit") for text in ("", "-1", "1.5", "%", ".5%", "1 %", "1e2", "٣", "1\n")),
    (RejectLimit, {"text": "100.1%"}, "expected a share of at most 100%, found 100.1%", "above all"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "fields", "message", "reason"), REFUSED)
def test_refused(make: Any, fields: dict[str, Any], message: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**fields)
    (only,) = caught.value.errors()
    assert only["msg"].removeprefix("Value error, ") == message, reason


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 64}, "seed"),
        ({"colour": "red"}, "colour"),
        ({"source": "a b"}, "source"),
        ({"sharding": {"num_shards": 0}}, "sharding.num_shards"),
        ({"sharding": {"num_shards": 100_000}}, "sharding.num_shards"),
    ],
)
def test_job_names_the_wrong_field(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        job(**fields)
    assert [".".join(map(str, e["loc"])) for e in caught.value.errors()] == [where]


FRACTION_TEXTS = [
    ("0.8", Fraction(4, 5), "decimal"),
    (".5", Fraction(1, 2), "no leading zero"),
    ("1", Fraction(1), "whole"),
    ("1/3", Fraction(1, 3), "exact"),
    ("2/6", Fraction(1, 3), "need not be reduced"),
    ("0.1", Fraction(1, 10), "not the float 0.1"),
    ("1e-1", None, "no exponent: 1e-999999999 would fill the memory"),
    ("50%", None, "percent"),
    ("", None, "empty"),
    ("1/0", None, "no number"),
    ("nan", None, "no number"),
    ("inf", None, "no number"),
    ("-0.5", None, "below 0"),
    ("1/-2", None, "below 0"),
    ("0,5", None, "comma"),
    ("٠.٥", None, "other digits"),
    ("0.5\n", None, "newline"),
]


@pytest.mark.parametrize(("text", "expected", "reason"), FRACTION_TEXTS)
def test_parse_fraction(text: str, expected: Fraction | None, reason: str) -> None:
    if expected is not None:
        assert parse_fraction(text) == expected, reason
        return
    message = f"expected a fraction like 0.8 or 4/5, found {text!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_fraction(text)


ALLOWED = [
    ("0", 10**12, 0, "none by default"),
    ("7", 3, 7, "a count does not depend on the rows"),
    ("1%", 99, 0, "rounded down"),
    ("1%", 100, 1, "exactly one"),
    ("1%", 199, 1, "rounded down"),
    ("0.1%", 3_000, 3, "2.9999... in floats"),
    ("29%", 100, 29, "28.999... in floats"),
    ("0%", 10**12, 0, "nothing"),
    ("100%", 10**18 + 1, 10**18 + 1, "all, beyond a float's 53 bits"),
]


@pytest.mark.parametrize(("text", "rows", "expected", "reason"), ALLOWED)
def test_rejects_allowed(text: str, rows: int, expected: int, reason: str) -> None:
    assert RejectLimit(text=text).max_rejects(rows) == expected, reason


IDENTIFIERS = [
    ("digits", "digits", "as it is"),
    ("2024 my-photos", "dataset_2024_my_photos", "starts with a digit"),
    ("a..b", "a_b", "one sign for several"),
    ("-x-", "x", "none at the ends"),
    ("_private", "private", "must start with a letter"),
    ("été", "t", "letters of ASCII alone"),
    ("", "dataset", "the root folder has no name"),
    ("日本", "dataset", "nothing left"),
]


@pytest.mark.parametrize(("text", "expected", "reason"), IDENTIFIERS)
def test_identifier_from(text: str, expected: str, reason: str) -> None:
    assert to_dataset_name(text) == expected, reason
    assert job(name=expected).name == expected


def test_shard_file_name() -> None:
    assert shard_file_name("a", "b-c", 99_998, 99_999) == (
        "a-b-c.tfrecord-99998-of-99999"
    )
    assert shard_file_name("a", "b", 3, 4, "gzip") == "a-b-00003-of-00004.tfrecord.gz"
