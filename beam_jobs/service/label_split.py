"""Determines, before the run, the classes and splits that columns of a table name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_summary import InputReport, InputWarning
from recordmill.schemas.job import (
    DEFAULT_SPLITS,
    MAX_SPLITS,
    SPLIT_PATTERN,
    JobSpec,
    parse_fraction,
    parse_split_times,
)
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.exact_splits import (
    WIDTH,
    RankSketch,
    SplitLimits,
    expected_ends,
    find_limits,
)
from recordmill.transforms.exchange.keys import split_hashes
from recordmill.transforms.sources.base import Rows, RowSource, Source
from recordmill.transforms.sources.file_splits import TRAIN_NAMES
from recordmill.transforms.sources.label_split import (
    MISSING_KEY,
    LabelRole,
    LabelSplitRows,
    SplitRole,
    TimeRole,
    find_class_keys,
    has_decimal_commas,
    require_times,
    sorted_names,
)
from recordmill.transforms.statistics.input_statistics import (
    MAX_CLASSES,
    Sketches,
    count_rows,
)

_WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)


def has_label_or_split_column(job: JobSpec) -> bool:
    """Tests whether a job has a label column, a split column or a split by time."""
    column_options = (job.label, job.split_column, job.split_by_time)
    return any(option is not None for option in column_options)


def schema_of_table(
    job: JobSpec, source: Source, prepare: Callable[[], RowSource], schema: Schema
) -> Schema:
    """Returns the columns that a table must have to be appended to a dataset.

    `prepare` returns the rows of the table without an append.
    """
    # Cells of formats without types are read as text.
    columns, label = pa.schema([]), job.label
    if not source.infers_types:
        rows = prepare()
        columns = rows.columns()
        if label is not None and label_class_names(rows, label):
            label = None  # no label role, because the source converts values to labels
    features = [feature for feature in schema.features if feature.name != label]
    roles = filter(None, (label, job.split_column))
    features += [_role_feature(columns, name) for name in roles]
    return Schema(tuple(features))


def _role_feature(columns: pa.Schema, name: str) -> FeatureSpec:
    number = columns.get_field_index(name)
    column_type = columns.field(number).type if number >= 0 else pa.string()
    if pt.is_boolean(column_type):
        return FeatureSpec(name, Kind.INT64, dtype="bool")
    if pt.is_integer(column_type):
        return FeatureSpec(name, Kind.INT64, dtype="int64")
    return FeatureSpec(name, Kind.BYTES, dtype="string")


def add_label_split(
    job: JobSpec,
    source: RowSource,
    ranges: Sequence[InputRange],
    schema: Schema | None,
    workers: int,
) -> RowSource:
    """Returns the rows with the label and split that a job names; reads the input.

    If rows are appended to a dataset, the classes are the classes in its schema.
    """
    label, split = job.label, job.split_column
    facts: list[tuple[str, str]] = []
    warnings: tuple[InputWarning, ...] = ()
    label_role: LabelRole | None = None
    split_role: SplitRole | None = None

    def counted(option: str, column: str) -> Sketches:
        error = too_many_values_message(option, column)
        return count_rows(source, ranges, column, error, workers=workers)

    if label is not None:
        _require_column(job, source, "label", label)
        names = label_class_names(
            source, label
        )  # non-empty if the source converts to labels
        if not names and schema is not None:
            names = schema[label].class_names
            label_role = LabelRole(label, names)
        elif not names:
            names = _class_names(label, counted("label", label))
            label_role, warnings = (
                LabelRole(label, names),
                _renumbered_warnings(label, names),
            )
        facts.append(
            (
                "label",
                f"{label}, {format_count(len(names), 'class')}: {format_names(names)}",
            )
        )
    if split is not None:
        _require_column(job, source, "split_column", split)
        sketches = counted("split_column", split)
        # Without any row, as in an appended file with only a header, any name is fine.
        split_names = (
            _split_names(split, sketches) if sketches else (DEFAULT_SPLITS[0].name,)
        )
        rows = tuple(sketches[name].count if sketches else 1 for name in split_names)
        split_role = SplitRole(
            split, split_names, rows, is_dropped=job.declared is None
        )
        left = "" if job.declared else "; it does not become a feature"
        description = (
            f"rows by column {split}: {_format_split_rows(split_names, rows)}{left}"
        )
        facts.append(("splits", description + _ignored_splits_note(ranges)))
    if job.split_by_time is not None:
        times = parse_split_times(job.split_by_time)
        _require_column(job, source, "split_by_time", times.column, any_type=True)
        comma = has_decimal_commas(job, source, times.column)
        require_times(source, ranges, times, decimal_comma=comma)
        split_role = TimeRole.from_times(times, decimal_comma=comma)
        description = f"by the value of {times.column}: {job.split_by_time}"
        facts.append(("splits", description + _ignored_splits_note(ranges)))
    return LabelSplitRows(source, label_role, split_role, tuple(facts), warnings)


def _format_split_rows(names: Iterable[str], rows: Iterable[int]) -> str:
    return ", ".join(
        f"{name} {num_rows:,}" for name, num_rows in zip(names, rows, strict=True)
    )


def _ignored_splits_note(ranges: Sequence[InputRange]) -> str:
    """Returns a note if file names also name splits, which are ignored; or ""."""
    names = sorted({input_range.split for input_range in ranges if input_range.split})
    return f"; not {', '.join(names)} from file names" if names else ""


def _require_column(
    job: JobSpec, source: RowSource, option: str, column: str, *, any_type: bool = False
) -> None:
    """Checks that a column can be the label column or a split column."""
    if source.has_fixed_roles:
        table_option = source.input_source.role_options.get(option)
        instead = (
            f"; for a column of `label_table` use `{table_option}`"
            if table_option
            else ""
        )
        raise UsageError(
            f"`{option}` names a column of a table, but {job.source} has no columns: "
            f"its files define labels and splits. Leave out `{option}`{instead}"
        )
    columns = source.columns()
    splits = source.input_source.splits
    if column == "split" and splits.uses_key_folders and column not in columns.names:
        raise UsageError(
            f"`{option}` {column}: folders named {column}=... already define the "
            f"splits and are not a column: leave out `{option}`, or use "
            "`split_from=none`"
        )
    if not any_type or column not in columns.names:
        require_class_column(option, column, columns)
    elif pt.is_nested(column_type := columns.field(column).type) or pt.is_boolean(
        column_type
    ):
        raise UsageError(
            f"`{option}` {column}: is {column_type}; expected times or numbers. Name another "
            "column"
        )


def require_class_column(option: str, column: str, columns: pa.Schema) -> None:
    """Refuses a column whose type cannot name classes or splits."""
    number = columns.get_field_index(column)
    if number < 0:
        raise UsageError(
            f"`{option}` {column}: no such column; the input has "
            f"{', '.join(columns.names)}"
        )
    column_type = columns.field(number).type
    if not (
        pt.is_string(column_type)
        or pt.is_integer(column_type)
        or pt.is_boolean(column_type)
    ):
        raise UsageError(
            f"`{option}` {column}: is {column_type}; expected text, whole numbers or booleans. "
            f"Name another column, or leave out `{option}`"
        )


def too_many_values_message(option: str, column: str) -> str:
    """Returns the message for a column with too many values to be classes or splits."""
    return (
        f"`{option}` {column}: more than {MAX_CLASSES:,} different values; classes and "
        f"splits have fewer names. Name another column, or leave out `{option}`"
    )


def label_class_names(source: RowSource, column: str) -> tuple[str, ...]:
    """Returns the class names of a column that already is a class label, or ()."""
    if isinstance(source, LabelSplitRows) and source.label is not None:
        return source.label.names if source.label.column == column else ()
    if source.infers_types:
        return ()
    features = source.schema().features
    return next(
        (feature.class_names for feature in features if feature.column == column), ()
    )


def _class_names(column: str, sketches: Sketches) -> tuple[str, ...]:
    names = sorted_names([text for text in sketches if text])
    if not names:
        raise InputError(
            f"`label` {column}: no row has a value; name another column, or leave out "
            "`label`"
        )
    return tuple(names)


def _renumbered_warnings(column: str, names: Sequence[str]) -> tuple[InputWarning, ...]:
    """Returns a warning if the values are whole numbers that differ from their labels."""
    renumbered_names = [(i, name) for i, name in enumerate(names) if name != str(i)]
    if not renumbered_names or not all(map(_WHOLE_NUMBER.fullmatch, names)):
        return ()
    number, name = renumbered_names[0]
    message = (
        f"column {column}: the value {name} becomes label {number}, because labels "
        f"number the {format_count(len(names), 'class')} from 0; the labels file has their "
        "names"
    )
    return (InputWarning("renumbered-labels", message),)


def _split_names(column: str, sketches: Sketches) -> tuple[str, ...]:
    """Returns the splits that a column names, train first."""
    names = [text for text in sketches if text and SPLIT_PATTERN.fullmatch(text)]
    if not names:
        values = format_names(sorted(text for text in sketches if text))
        raise InputError(
            f"`split_column` {column}: no value is a valid name of a split (letters, "
            f"digits, '_' and '-'){f'; it has {values}' if values else ''}. Name another "
            "column, or leave out `split_column`"
        )
    if len(names) > MAX_SPLITS:
        raise InputError(
            f"`split_column` {column}: {len(names):,} different values; a dataset has at "
            f"most {MAX_SPLITS} splits. Name another column, or leave out `split_column`"
        )
    names.sort(key=lambda name: (name.casefold() not in TRAIN_NAMES, name))
    return tuple(names)


WINDOW_GROWTH = 8  # factor by which the window grows if it did not contain a limit


def is_exact(job: JobSpec) -> bool:
    """Tests whether a job's splits are exact, over all rows or within each class."""
    return job.split_exact or job.stratify_by is not None


def find_exact_limits(
    job: JobSpec, source: RowSource, ranges: Sequence[InputRange], workers: int
) -> SplitLimits:
    """Counts the rows of each class in ranges, and computes the limits of the splits."""
    column = job.stratify_by
    comma = False
    if column is not None:
        require_class_column("stratify_by", column, source.columns())
        comma = has_decimal_commas(job, source, column)
    fractions = [parse_fraction(split.fraction) for split in job.splits]
    width = WIDTH

    def draws_of(_: InputRange, rows: Rows) -> tuple[Rows, U64]:
        if rows.group_hashes is not None:  # exact splits need independent rows
            raise UsageError(
                "`map` makes several rows from one, which must stay in one split, so "
                "the splits cannot be exact: leave out `split_exact` and "
                "`stratify_by`, or return at most one row for each"
            )
        return rows, split_hashes(rows.origins, job.seed)

    while True:
        sketches_by_key = count_rows(
            source,
            ranges,
            column,
            too_many_values_message("stratify_by", str(column)),
            workers=workers,
            sketch=lambda _: RankSketch(expected_ends(fractions), width),  # noqa: B023
            draws_of=draws_of,
            values_of=partial(find_class_keys, decimal_comma=comma),
        )
        sketches = {
            key or MISSING_KEY: sketch for key, sketch in sketches_by_key.items()
        }
        limits = find_limits(sketches, fractions)
        if limits is not None:
            return limits
        width *= WINDOW_GROWTH


def exact_splits_report(job: JobSpec, limits: SplitLimits) -> InputReport:
    """Returns the input report on exact splits, before the run."""
    description = f"{_format_split_rows((split.name for split in job.splits), limits.records)} rows"
    if job.stratify_by is not None:
        classes = format_count(len(limits.classes), "class")
        description += f", for each of {classes} of {job.stratify_by}"
    return InputReport(fields=(("exact splits", description),))
