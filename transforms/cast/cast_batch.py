"""Casts a source's columns to declared features, between reading and encoding.

    source column                               declared              feature column
    text cell  7 | true | 0.5 | 2024-01-31      dtype, unit           the dtype
    text cell  cat                              classes               index of the class
    text cell  1;2;3 | [[1, 2], [3, 4]]         separator | cell json list
    text cell  48656c6c6f | SGVsbG8=            cell hex | base64     binary
    text cell  images/1.jpg                   bytes_from: path      the file's bytes
    numbers, times, lists, binary               dtype, shape          the dtype, lists

Whole columns are converted together. A row with a value that its feature cannot hold is
rejected with a reason. A column whose type cannot become the feature is a SchemaError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.declared import DeclaredFeature, DeclaredSchema, ImageRule
from recordmill.schemas.errors import SchemaError
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.cell_lists import (
    cast_lists,
    feature_type,
    parse_json,
    split_cells,
)
from recordmill.transforms.cast.side_files import SidecarFileError, SidecarFiles
from recordmill.transforms.cast.text_values import CastColumn, valid_mask
from recordmill.transforms.cast.typed_values import array_lists, cast_typed, cast_values
from recordmill.transforms.encode.columns import (
    BYTES,
    family_of,
    is_list,
    is_text,
    require_column,
    unwrap_array,
)
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    error_mask,
    errors_by_row,
    flag_invalid,
    merge_errors,
    prefix_errors,
)
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeaderError


def _cast_column(column: pa.Array, feature: DeclaredFeature) -> CastColumn:
    """Casts a column to a feature; for `bytes_from: path`, returns the paths.

    Missing values become the default, or are invalid if the feature is required.
    """
    column = unwrap_array(column)
    if feature.null_values and family_of(column.type) == BYTES:
        nulls = pa.array(feature.null_values, column.type)
        column = pc.if_else(pc.is_in(column, nulls), None, column)
    cast_result = _cast_checked(column, feature)
    missing = ~valid_mask(cast_result.array)
    if not missing.any() or feature.optional:
        return cast_result
    if feature.default is not None:
        return CastColumn(
            cast_result.array.fill_null(_cast_default(feature)), cast_result.errors
        )
    missing &= ~error_mask(cast_result.errors, len(missing))
    errors = flag_invalid(
        missing, lambda _: "missing; it is neither optional nor has a default"
    )
    return CastColumn(cast_result.array, merge_errors(cast_result.errors, errors))


def _cast_default(feature: DeclaredFeature, location: str = "") -> pa.Scalar:
    """Returns the default, parsed like a cell; for JSON cells, like the parsed value."""
    default = feature.default
    if feature.cell == "json" or isinstance(default, bytes):
        feature = feature.model_copy(update={"cell": "plain"})
    try:
        cast_result = _cast_checked(pa.array([default]), feature)
        problem = cast_result.errors.get(
            0, "no value" if cast_result.array.null_count else ""
        )
    except (pa.ArrowException, OverflowError, SchemaError) as error:
        raise SchemaError(f"{location}default {default!r}: {error}") from error
    if problem:
        raise SchemaError(f"{location}default {default!r}: {problem}")
    return cast_result.array[0]


def _cast_checked(column: pa.Array, feature: DeclaredFeature) -> CastColumn:
    cast_result = _cast(column, feature)
    if not feature.picture or feature.bytes_from:
        return cast_result
    errors = _image_errors(cast_result.array, feature.picture)
    return CastColumn(cast_result.array, merge_errors(cast_result.errors, errors))


def _image_errors(images: pa.Array, rule: ImageRule) -> RowErrors:
    if is_list(images.type):
        lengths = pc.list_value_length(images).fill_null(0).to_numpy()
        return errors_by_row(_image_errors(images.flatten(), rule), offsets_of(lengths))
    errors = {}
    # A loop over images: a header takes 1 to 3 us, reading a file ten times as long.
    for row, image in enumerate(images):
        if image.is_valid and (reason := _image_reason(image.as_py(), rule)):
            errors[row] = reason
    return errors


def _image_reason(data: bytes, rule: ImageRule) -> str:
    try:
        header = check_image(data)
    except ImageHeaderError as error:
        return str(error)
    wrong = [
        f"{name} {actual}, expected {expected}"
        for name, actual, expected in (
            ("format", header.format, rule.format),
            ("height", header.height, rule.height),
            ("width", header.width, rule.width),
            ("channels", header.depth, rule.channels),
        )
        if expected is not None and actual != expected
    ]
    return f"image of {'; '.join(wrong)}" if wrong else ""


def _cast(column: pa.Array, feature: DeclaredFeature) -> CastColumn:
    kind = column.type
    listed = bool(feature.shape) or feature.sequence
    if feature.bytes_from:
        if feature.sequence:
            raise SchemaError("a column of paths has one file per row: remove sequence")
        if pt.is_null(kind):
            column, kind = column.cast(pa.string()), pa.string()
        if not is_text(kind):
            raise SchemaError(
                f"{kind} does not contain paths: bytes_from needs a text column"
            )
        return cast_typed(column, "string", None)
    if pt.is_null(kind):
        return CastColumn(pa.nulls(len(column), feature_type(feature)), {})
    if family_of(kind) == BYTES and (feature.cell == "json" or feature.separator):
        return _parse_lists(column, feature)
    if is_list(kind):
        return cast_lists(column, feature)
    if not listed:
        return cast_values(column, feature)
    numbers = feature.dtype not in ("string", "bytes")
    if family_of(kind) == BYTES and not is_text(kind) and numbers:
        lists, errors = array_lists(column.cast(pa.binary()), feature.dtype)
        return cast_lists(lists, feature).with_earlier_errors(errors)
    if is_text(kind):
        raise SchemaError(
            "a text cell is one value, but the schema declares a list: set separator "
            "or cell: json"
        )
    raise SchemaError(f"{kind} contains single values, but the schema declares a list")


def _parse_lists(column: pa.Array, feature: DeclaredFeature) -> CastColumn:
    cells, errors = cast_typed(column, "string", None)
    if feature.separator:
        return cast_lists(
            split_cells(cells, feature.separator), feature
        ).with_earlier_errors(errors)
    levels = len(feature.shape) + feature.sequence
    parsed = parse_json(cells, levels, feature)
    convert = cast_lists if levels else cast_values
    return convert(parsed.array, feature).with_earlier_errors(
        merge_errors(errors, parsed.errors)
    )


FILE_BYTES = 64 << 20  # size of the sidecar files that are in memory together


@dataclass(frozen=True, slots=True)
class CastBatch:
    """The valid rows of a cast batch, and the reasons of the invalid ones."""

    batch: pa.RecordBatch  # a column for every declared feature, named as the feature
    # indices of the batch's rows among all rows that were cast, ascending
    row_indices: I64
    invalid_rows: list[tuple[int, str]]  # (row index, reason) of the others, ascending


def cast(
    batch: pa.RecordBatch, declared: DeclaredSchema, files: SidecarFiles | None = None
) -> Iterator[CastBatch]:
    """Casts a source's columns to the declared features; yields the rows in order.

    All rows are in one batch, unless `bytes_from: path` columns name sidecar files. Then
    each batch has about FILE_BYTES of them.

    Raises:
      SchemaError: as in `check_columns`.
    """
    columns: dict[str, pa.Array] = {}
    errors: RowErrors = {}
    for name, feature in declared.features.items():
        column = declared.column_of(name)
        require_column(batch.schema, name, column)
        cast_result = _cast_feature(name, feature, column, batch[column])
        columns[name] = cast_result.array
        errors = merge_errors(errors, cast_result.errors)
    by_path = [name for name, f in declared.features.items() if f.bytes_from]
    if not by_path:
        yield _keep_valid(columns, errors, 0, batch.num_rows)
        return
    if files is None:
        raise SchemaError(
            f"feature {by_path[0]!r}: bytes_from: path names files next to a table; "
            "this format has no such files"
        )
    paths = {name: columns[name].to_pylist() for name in by_path}
    for start, stop, contents in _read_sidecar_files(
        paths, files, batch.num_rows, errors
    ):
        size = stop - start
        part = {name: array.slice(start, size) for name, array in columns.items()}
        part |= contents
        invalid = {row: why for row, why in errors.items() if start <= row < stop}
        for name, file_column in contents.items():
            if rule := declared.features[name].picture:
                images = prefix_errors(name, _image_errors(file_column, rule))
                wrong = {start + row: reason for row, reason in images.items()}
                invalid = merge_errors(invalid, wrong)
        yield _keep_valid(part, invalid, start, stop)


def _read_sidecar_files(
    paths: dict[str, list[str | None]],
    files: SidecarFiles,
    num_rows: int,
    errors: RowErrors,
) -> Iterator[tuple[int, int, dict[str, pa.Array]]]:
    """Yields (start, stop, files) of consecutive rows, with about FILE_BYTES each."""
    contents: dict[str, list[bytes | None]] = {name: [] for name in paths}
    start = num_bytes = 0
    for stop in range(num_rows + 1):
        if num_bytes >= FILE_BYTES or stop == num_rows:
            arrays = {
                n: pa.array(column_contents, pa.binary())
                for n, column_contents in contents.items()
            }
            for column_contents in contents.values():
                column_contents.clear()
            yield start, stop, arrays
            start, num_bytes = stop, 0
        # A loop over files, because each needs a system call or a request.
        for name in paths if stop < num_rows else ():
            path, content = paths[name][stop], None
            if path is not None and stop not in errors:
                try:
                    content = files.read(path)
                except SidecarFileError as error:
                    errors[stop] = f"feature {name!r}: {error}"
            contents[name].append(content)
            num_bytes += len(content or b"")


def check_columns(arrow_schema: pa.Schema, declared: DeclaredSchema) -> None:
    """Checks that every feature can be cast, before any row is read.

    Raises:
      SchemaError: lists all missing columns, types that cannot become the dtype and
        shape, and defaults that do not fit.
    """
    problems = []
    for name, feature in declared.features.items():
        try:
            column = declared.column_of(name)
            require_column(arrow_schema, name, column)
            # Without rows only the type can be wrong.
            no_rows = pa.array([], arrow_schema.field(column).type)
            _cast_feature(name, feature, column, no_rows)
            if feature.default is not None:
                _cast_default(feature, f"feature {name!r}: ")
        except SchemaError as error:
            problems.append(str(error))
    if problems:
        raise SchemaError("\n  ".join(problems))


def _cast_feature(
    name: str, feature: DeclaredFeature, column: str, cells: pa.Array
) -> CastColumn:
    """Casts a feature's column; reasons and errors name the feature."""
    try:
        cast_result = _cast_column(cells, feature)
    except SchemaError as error:
        raise SchemaError(f"feature {name!r}: column {column!r}: {error}") from error
    return CastColumn(cast_result.array, prefix_errors(name, cast_result.errors))


def _keep_valid(
    columns: dict[str, pa.Array], errors: RowErrors, start: int, stop: int
) -> CastBatch:
    batch = pa.RecordBatch.from_pydict(columns)
    row_indices = np.arange(start, stop, dtype=np.int64)
    if errors:
        good = ~error_mask(errors, stop)[start:]
        batch, row_indices = batch.filter(pa.array(good)), row_indices[good]
    return CastBatch(batch, row_indices, sorted(errors.items()))
