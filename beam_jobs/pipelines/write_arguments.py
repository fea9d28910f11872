"""Checks the arguments of WriteDataset, and makes the job of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from os import PathLike
from typing import Any

from pydantic import ValidationError

from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.features.declare import declare_schema
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, SplitSpec
from recordmill.schemas.job.spell_options import spell
from recordmill.schemas.job.split_rules import split_contradictions
from recordmill.schemas.job.split_times import parse_split_times
from recordmill.schemas.parsing.problems import expectation, parse_declared
from recordmill.transforms.encode.payloads import check_payload

AnySchema = DeclaredSchema | Schema | Mapping[str, Any] | str | PathLike[str]
AnySplits = Mapping[str, str | float | Fraction] | Sequence[str]


def splits_of(
    splits: AnySplits | None,
    *,
    split_by: str | None,
    split_column: str | None,
    split_by_time: str | None,
    split_exact: bool,
    stratify_by: str | None,
) -> tuple[SplitSpec, ...]:
    """Returns the splits that the arguments of WriteDataset say.

    Where a column tells the split of each row, their shares are equal and mean nothing.

    Raises:
      UsageError: arguments exclude each other, or cannot be followed.
      ValueError: the times are not valid.
    """
    asked = [("split_exact", split_exact), ("stratify_by", stratify_by)]
    if names := [name for name, is_asked in asked if is_asked]:
        way = (
            "--stratify-by COLUMN --records decode" if stratify_by else "--split-exact"
        )
        given_splits = ["splits"] if splits is not None else []
        raise UsageError(
            f"WriteDataset: {' and '.join(names)}: where exact splits end is known only "
            "after the last row, but each row is sent on as it comes. Leave out "
            f"{' and '.join([*names, *given_splits])}, and divide the dataset afterwards: "
            "`recordmill convert tfrecord DATASET OUT --split train=0.8 --split test=0.2 "
            f"{way}`"
        )
    shares = splits if isinstance(splits, Mapping) else None
    given = {
        "split_by": split_by,
        "split_column": split_column,
        "split_by_time": split_by_time,
    }
    given = {name: value for name, value in given.items() if value is not None}
    for option, what in split_contradictions({**given, "splits": shares}):
        text = spell(f"`{option}` {what}", "python")
        raise UsageError(f"WriteDataset: {text}")
    if split_by_time is not None:
        times = parse_split_times(split_by_time)
        if splits is not None:
            raise UsageError(
                "WriteDataset: split_by_time names the splits, too: leave out splits"
            )
        return _equal(times.names)
    if split_column is not None:
        if not splits or isinstance(splits, str):
            raise UsageError(
                "WriteDataset: split_column needs the names of the splits before the "
                "first row: give them as splits=['train', 'test']"
            )
        return _equal(tuple(splits))
    if splits is not None and shares is None:
        raise UsageError(
            "WriteDataset: splits without shares are for split_column: give shares like "
            "splits={'train': 0.9, 'test': 0.1}"
        )
    return tuple(
        SplitSpec(name=split, fraction=str(share))
        for split, share in (shares or {"train": 1}).items()
    )


def _equal(names: tuple[str, ...]) -> tuple[SplitSpec, ...]:
    return tuple(SplitSpec(name=name, fraction=f"1/{len(names)}") for name in names)


def declared_of(schema: Any) -> DeclaredSchema:
    """Returns the declared schema that an argument is.

    Raises:
      UsageError: it is not one.
      SchemaError: a feature is not valid.
    """
    if isinstance(schema, DeclaredSchema):
        return schema
    if isinstance(schema, Schema):
        return declare_schema(schema)
    if not isinstance(schema, Mapping):
        raise UsageError(
            f"WriteDataset: schema of type {type(schema).__name__}; expected a path, a "
            "mapping of features, a DeclaredSchema or a Schema"
        )
    return parse_declared({"features": dict(schema)}, "the schema of WriteDataset")


def with_schema(job: JobSpec, declared: DeclaredSchema) -> JobSpec:
    """Returns the job with its schema.

    Raises:
      SchemaError: the schema does not suit rows, or not the payload.
    """
    for name, feature in declared.features.items():
        if feature.bytes_from:
            raise SchemaError(
                f"feature {name!r}: bytes_from: path reads files beside a table, which "
                "the rows of a pipeline do not have; let the rows hold the bytes"
            )
    check_payload(declared.to_schema(), job.payload)
    return job.model_copy(update={"declared": declared})


def first_problem(error: ValueError) -> str:
    """Returns what is wrong with the first of the arguments that do not fit."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    message = spell(expectation(first), "python")
    return f"{location}: {message}" if location else message
