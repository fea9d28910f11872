"""Maps the Arrow types of files to plain types, and merges the types of several files.

    int8 ... int64, uint8 ... uint32        int64
    float16, float32                        float32
    decimals                                float64; unchanged with a declared schema
    string, binary: large, view, fixed size string, binary
    dictionary, run-end encoded, extension  the type of the values inside
    lists of these                          lists

Each field of a struct becomes a column: `box` with the fields `x` and `y` becomes `box/x`
and `box/y`, and a list of such structs becomes two lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.source_options import IGNORE_COLUMNS_HINT
from recordmill.schemas.text import format_names
from recordmill.transforms.encode.columns import (
    BOOL,
    BYTES,
    FLOAT,
    INTEGER,
    NULL,
    TIME,
    family_of,
    inside_lists,
    is_list,
    is_text,
    lists_of,
    plain_type,
    unwrap_array,
)
from recordmill.transforms.sources.file_splits import format_exclude_option

SEPARATOR = "/"


def plain_columns(
    schema: pa.Schema, uri: str, *, as_declared: bool, used_columns: Sequence[str] = ()
) -> dict[str, pa.DataType]:
    """Returns the plain type of each column of a file, by name.

    Args:
      schema: the Arrow schema of the file.
      uri: the file, for messages.
      as_declared: whether a declared schema defines the features. If so, columns that
        cannot become a feature are left out, and decimals remain decimals.
      used_columns: the columns that are used, or () for all.

    Raises:
      InputError: a column cannot become a feature, or two columns have the same name.
    """
    columns: dict[str, pa.DataType] = {}
    problems: list[str] = []
    for column in schema:
        for name, arrow_type in flatten_type(column.name, column.type):
            plain = _find_plain_type(arrow_type, as_declared=as_declared)
            if not column.name:
                raise InputError(f"{uri}: has a column without a name: name it")
            if name in columns:
                raise InputError(
                    f"{uri}: has two columns {name!r}; expected different names (the "
                    "fields of a struct are also columns): rename one of them"
                )
            if plain is not None:
                columns[name] = plain
            elif not as_declared and (not used_columns or name in used_columns):
                problems.append(f"column {name!r} of type {arrow_type}")
    if problems:
        raise InputError(
            f"{uri}: {', '.join(problems)} cannot be features; expected numbers, "
            "booleans, text, bytes, times, and lists or structs of these. Declare the "
            "other columns in a schema file (`schema`)"
        )
    if not columns:
        raise InputError(f"{uri}: has no column that can be a feature")
    return columns


def flatten_type(
    name: str, arrow_type: pa.DataType
) -> Iterator[tuple[str, pa.DataType]]:
    """Yields name and type of each column that a column is split into."""
    plain = plain_type(arrow_type)
    if pt.is_struct(plain):
        for field in plain:
            yield from flatten_type(f"{name}{SEPARATOR}{field.name}", field.type)
    elif pt.is_list(plain) or pt.is_large_list(plain):
        for inner, value_type in flatten_type(name, plain.value_type):
            yield inner, pa.list_(value_type)
    else:
        yield name, plain


def flatten_batch(
    batch: pa.RecordBatch, columns: pa.Schema, rename_column: Callable[[str], str] = str
) -> pa.RecordBatch:
    """Returns the rows of a file with plain columns.

    Args:
      batch: the rows as in the file.
      columns: names and types of the columns to return.
      rename_column: returns the new name of a column of the file.

    Raises:
      pa.ArrowException: a value does not fit the type.
    """
    leaf_columns = {
        rename_column(leaf): array
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for leaf, array in _leaf_columns(name, column)
    }
    arrays = [_cast_column(leaf_columns[field.name], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _leaf_columns(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yields name and cells of each column that a column is split into."""
    column = unwrap_array(column)
    if pt.is_struct(column.type):
        # In a missing struct, every field is missing.
        for field, leaf_array in zip(column.type, column.flatten(), strict=True):
            yield from _leaf_columns(f"{name}{SEPARATOR}{field.name}", leaf_array)
    elif (pt.is_list(column.type) or pt.is_large_list(column.type)) and pt.is_struct(
        inside_lists(column.type)[0]
    ):
        rows = column.cast(pa.list_(column.type.value_type))
        offsets = pa.array(rows.offsets.to_numpy(zero_copy_only=False).copy())
        missing = rows.is_null()
        for leaf, leaf_array in _leaf_columns(name, rows.values):
            yield leaf, pa.ListArray.from_arrays(offsets, leaf_array, mask=missing)
    else:
        yield name, column


def _cast_column(column: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Casts a column; casts decimals to floats by way of text."""
    if column.type.equals(arrow_type):
        return column
    leaf, shape = inside_lists(column.type)
    if pt.is_decimal(leaf) and pt.is_floating(inside_lists(arrow_type)[0]):
        # Arrow casts 1234567890.12 to 1234567890.1200001, but parses its text exactly.
        column = column.cast(lists_of(pa.string(), shape))
    return column.cast(arrow_type)


def _find_plain_type(
    arrow_type: pa.DataType, *, as_declared: bool
) -> pa.DataType | None:
    """Returns the plain type of a column without structs; None if it has none."""
    leaf, shape = inside_lists(arrow_type)
    family = family_of(leaf)
    if pt.is_decimal(leaf):
        leaf = leaf if as_declared else pa.float64()
    elif family == INTEGER:
        leaf = leaf if pt.is_uint64(leaf) else pa.int64()
    elif family == FLOAT:
        leaf = leaf if pt.is_float64(leaf) else pa.float32()
    elif family == BYTES:
        leaf = pa.string() if is_text(leaf) else pa.binary()
    elif family not in (BOOL, TIME, NULL):
        return None
    return lists_of(leaf, shape)


def merge_types(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Returns the narrowest type for the values of both types; None if there is none.

    >>> merge_types(pa.float32(), pa.float64())
    DataType(double)
    """
    if left.equals(right) or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if pt.is_floating(left) and pt.is_floating(right):
        return pa.float64()
    if is_list(left) and is_list(right):
        inner = merge_types(left.value_type, right.value_type)
        if inner is None:
            return None
        if pt.is_fixed_size_list(left) and pt.is_fixed_size_list(right):
            if left.list_size == right.list_size:
                return pa.list_(inner, left.list_size)
        return pa.list_(inner)
    return None


def describe_column_differences(
    file: InputFile | InputRange,
    names: Iterable[str],
    columns: Iterable[str],
    requested_columns: Iterable[str] = (),
    *,
    first: InputFile | None = None,
    leaves_out: bool = False,
) -> str:
    """Returns a description of how a file's columns differ from the first file, or "".

    Args:
      file: the file, for the message.
      names: the columns of the file.
      columns: the columns of the first file.
      requested_columns: the columns of a schema; () without one.
      first: the first file, if the message may suggest to exclude it.
      leaves_out: whether a file may have additional columns.
    """
    missing = sorted(set(columns) - set(names))
    extra_names = [] if leaves_out else sorted(set(names) - set(columns))
    if not missing and not extra_names:
        return ""
    differences = [f"lacks {', '.join(missing)}"] if missing else []
    differences += [f"also has {', '.join(extra_names)}"] if extra_names else []
    way_out = ""
    # A test file often lacks the labels. If it is the first file, suggest to exclude it.
    if first and not (missing and extra_names):
        lacking_file, missing_names = (
            file if missing else first,
            ", ".join(missing or extra_names),
        )
        exclude = format_exclude_option(lacking_file.path)
        way_out = f". To leave out the file without {missing_names}, {lacking_file.uri}, use {exclude}"
    if not leaves_out and not {*missing} & ({*requested_columns} or {*missing}):
        extra_text = ", ".join(extra_names)
        way_out += (
            f". Use `extra_columns=ignore` to leave out {extra_text} in all files"
        )
    return (
        f"{file.uri}: its columns differ from the first file: it "
        f"{' and '.join(differences)}; all files of one dataset need the same "
        f"columns{way_out}"
    )


def report_left_out_columns(
    names: Iterable[str], extra_text: str = ""
) -> tuple[tuple[str, str], ...]:
    """Returns a line for the input report about columns that become no feature, or ()."""
    description = "; ".join(filter(None, (format_names(sorted({*names})), extra_text)))
    return (("columns left out", description),) if description else ()


def merge_columns(
    file_columns: Sequence[tuple[InputFile, dict[str, pa.DataType]]],
    requested_columns: Sequence[str] = (),
) -> dict[str, pa.DataType]:
    """Returns the merged columns of several files, in the order of the first file.

    Args:
      file_columns: pairs (file, its columns).
      requested_columns: the columns of a schema; () without one.

    Raises:
      InputError: two files differ in a column; the message names them.
    """
    first, merged = file_columns[0][0], dict(file_columns[0][1])
    last_of = dict.fromkeys(merged, first)  # column -> the file that set its type
    for file, columns in file_columns[1:]:
        if difference := describe_column_differences(
            file, columns, merged, requested_columns, first=first
        ):
            raise InputError(difference)
        for name, arrow_type in columns.items():
            common_type = merge_types(merged[name], arrow_type)
            if common_type is None:
                raise InputError(
                    f"{file.uri}: column {name!r} is {arrow_type}, but {merged[name]} in "
                    f"{last_of[name].uri}; expected the same type in all files of an "
                    "input: convert such files one by one"
                )
            if not common_type.equals(merged[name]):
                merged[name], last_of[name] = common_type, file
    return merged


def plain_schema(columns: pa.Schema, nulls: Sequence[int] = ()) -> Schema:
    """Returns the features of columns.

    Args:
      columns: the columns, with plain types.
      nulls: the number of missing values of each column, or () if not known.
    """
    counts = nulls or (0,) * len(columns)
    return Schema(
        tuple(
            _feature(field.name, field.type, optional=missing > 0)
            for field, missing in zip(columns, counts, strict=True)
        )
    )


def _feature(name: str, arrow_type: pa.DataType, *, optional: bool) -> FeatureSpec:
    """Returns the feature of a column with a plain type."""
    leaf, shape = inside_lists(arrow_type)
    family = family_of(leaf)
    if family == FLOAT:
        kind, dtype = Kind.FLOAT, "float32"
    elif family in (BYTES, NULL):
        kind, dtype = Kind.BYTES, "bytes" if pt.is_binary(leaf) else "string"
    else:
        kind, dtype = Kind.INT64, "bool" if family == BOOL else "int64"
    return FeatureSpec(name, kind, dtype=dtype, shape=shape, optional=optional)


_LEAF_TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float32": pa.float64(),
    "bytes": pa.binary(),
}


def require_features(
    names: Iterable[str],
    schema: Schema,
    *,
    folders: Iterable[str] = (),
    may_lack: bool = False,
) -> None:
    """Checks that the columns of new files match the features of the dataset.

    Args:
      names: the columns of the new files.
      schema: the features of the dataset.
      folders: the columns that key folders define.
      may_lack: whether columns may be missing.

    Raises:
      SchemaError: the columns differ.
    """
    features = {feature.name for feature in schema.features}
    extra_names = sorted({*names} - features)
    missing = [] if may_lack else sorted(features - {*names})
    if extra_names or missing:
        way_out = "" if missing else f"{IGNORE_COLUMNS_HINT}, or "
        if extra_names and {*extra_names} <= {*folders}:
            way_out = (
                "use `partitions=none`, so that folders do not become columns, or "
            )
        differences = [f"lack {', '.join(missing)}"] if missing else []
        differences += [f"also have {', '.join(extra_names)}"] if extra_names else []
        raise SchemaError(
            f"the columns of the new files differ from the dataset's features "
            f"({format_names(sorted(features))}): they {' and '.join(differences)}; {way_out}"
            "convert all inputs again without `append`"
        )


def types_to_append(schema: Schema) -> dict[str, pa.DataType]:
    """Returns the types that the dataset's features require of columns in new files."""
    types = {}
    for feature in schema.features:
        leaf_type = _LEAF_TYPES.get(feature.dtype, pa.string())
        is_image = feature.content is Content.IMAGE
        types[feature.name] = (
            pa.binary() if is_image else lists_of(leaf_type, feature.shape)
        )
    return types
