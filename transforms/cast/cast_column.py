"""Casts one source column to one declared feature, whatever form its values have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.declared import DeclaredFeature, PictureRule
from recordmill.schemas.errors import SchemaError
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.cast.cast_result import CastResult, present
from recordmill.transforms.cast.cast_values import cast_values, is_text
from recordmill.transforms.cast.cell_bytes import array_lists
from recordmill.transforms.cast.cell_json import parse_json
from recordmill.transforms.cast.cell_lists import (
    cast_lists,
    feature_type,
    split_cells,
)
from recordmill.transforms.cast.typed_values import cast_typed
from recordmill.transforms.encode.arrow_types import BYTES, family_of, is_list, plain
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    by_row,
    flag_invalid,
    mask_of,
    merge,
)
from recordmill.transforms.pictures.check import check_picture
from recordmill.transforms.pictures.header import ImageHeaderError


def cast_column(column: pa.Array, feature: DeclaredFeature) -> CastResult:
    """Casts a column to a feature; of `bytes_from: path` the paths, not yet read.

    Missing values become the default, or are invalid where the feature is required.

    Raises:
      SchemaError: no value of the column's type can become one of the feature.
    """
    column = plain(column)
    if feature.null_values and family_of(column.type) == BYTES:
        nulls = pa.array(feature.null_values, column.type)
        column = pc.if_else(pc.is_in(column, nulls), None, column)
    made = _cast_checked(column, feature)
    missing = ~present(made.array)
    if not missing.any() or feature.optional:
        return made
    if feature.default is not None:
        return CastResult(made.array.fill_null(cast_default(feature)), made.errors)
    missing &= ~mask_of(made.errors, len(missing))
    errors = flag_invalid(
        missing, lambda _: "missing; it is neither optional nor has a default"
    )
    return CastResult(made.array, merge(made.errors, errors))


def cast_default(feature: DeclaredFeature) -> pa.Scalar:
    """Returns the default as a value of the feature.

    Text is read like a cell; in place of JSON stands what the JSON would tell.

    Raises:
      SchemaError: the feature cannot hold it.
    """
    default = feature.default
    if feature.cell == "json" or isinstance(default, bytes):
        feature = feature.model_copy(update={"cell": "plain"})
    try:
        made = _cast_checked(pa.array([default]), feature)
    except (pa.ArrowException, OverflowError, SchemaError) as error:
        raise SchemaError(f"default {default!r}: {error}") from error
    if made.errors or made.array.null_count:
        reason = made.errors.get(0, "no value")
        raise SchemaError(f"default {default!r}: {reason}")
    return made.array[0]


def _cast_checked(column: pa.Array, feature: DeclaredFeature) -> CastResult:
    """Casts the values, and checks pictures by their headers."""
    made = _cast(column, feature)
    if not feature.picture or feature.bytes_from:
        return made
    errors = picture_errors(made.array, feature.picture)
    return CastResult(made.array, merge(made.errors, errors))


def picture_errors(pictures: pa.Array, rule: PictureRule) -> RowErrors:
    """Returns the rows with bytes that are not a picture that the rule allows."""
    if is_list(pictures.type):
        lengths = pc.list_value_length(pictures).fill_null(0).to_numpy()
        return by_row(picture_errors(pictures.flatten(), rule), offsets_of(lengths))
    errors = {}
    # A loop per picture: its header takes 1 to 3 us, reading its file ten times that.
    for row, picture in enumerate(pictures):
        if picture.is_valid and (reason := _picture_reason(picture.as_py(), rule)):
            errors[row] = reason
    return errors


def _picture_reason(data: bytes, rule: PictureRule) -> str:
    try:
        header = check_picture(data)
    except ImageHeaderError as error:
        return str(error)
    wrong = [
        f"{name} {found}, expected {wanted}"
        for name, found, wanted in (
            ("format", header.format, rule.format),
            ("height", header.height, rule.height),
            ("width", header.width, rule.width),
            ("channels", header.depth, rule.channels),
        )
        if wanted is not None and found != wanted
    ]
    return f"picture of {'; '.join(wrong)}" if wrong else ""


def _cast(column: pa.Array, feature: DeclaredFeature) -> CastResult:
    kind = column.type
    listed = bool(feature.shape) or feature.sequence
    if feature.bytes_from:
        if feature.sequence:
            raise SchemaError("a column of paths has one file a row: drop sequence")
        if pt.is_null(kind):
            column, kind = column.cast(pa.string()), pa.string()
        if not is_text(kind):
            raise SchemaError(f"{kind} holds no paths: bytes_from needs a text column")
        return cast_typed(column, "string", None)
    if pt.is_null(kind):
        return CastResult(pa.nulls(len(column), feature_type(feature)), {})
    if family_of(kind) == BYTES and (feature.cell == "json" or feature.separator):
        return _parse_lists(column, feature)
    if is_list(kind):
        return cast_lists(column, feature)
    if not listed:
        return cast_values(column, feature)
    numbers = feature.dtype not in ("string", "bytes")
    if family_of(kind) == BYTES and not is_text(kind) and numbers:
        lists, errors = array_lists(column.cast(pa.binary()), feature.dtype)
        made = cast_lists(lists, feature)
        return CastResult(made.array, merge(errors, made.errors))
    if is_text(kind):
        raise SchemaError(
            "text cells hold one value each, but a list is declared: say how it is "
            "written, with separator or with cell: json"
        )
    raise SchemaError(f"{kind} holds single values, but a list is declared")


def _parse_lists(column: pa.Array, feature: DeclaredFeature) -> CastResult:
    """Parses text cells that hold several values, or JSON."""
    cells, errors = cast_typed(column, "string", None)
    if feature.separator:
        made = cast_lists(split_cells(cells, feature.separator), feature)
        return CastResult(made.array, merge(errors, made.errors))
    levels = len(feature.shape) + feature.sequence
    parsed = parse_json(cells, levels, feature)
    convert = cast_lists if levels else cast_values
    made = convert(parsed.array, feature)
    return CastResult(made.array, merge(errors, merge(parsed.errors, made.errors)))
