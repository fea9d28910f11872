"""Checks which Arrow types a feature can be made from, before any row is read.

    integers of every width, bool, date, time, timestamp, duration  -> int64_list
    float16, float32, float64                                       -> float_list
    string, binary: plain, large, view, of fixed size               -> bytes_list
    tensors and arrays take the numbers, or the bytes, of their dtype
    list, large list, fixed-size list, list view                    -> a shape
    dictionary, run-end encoded, extension                          -> what is inside
    null                                                            -> anything

Dates and times are the integers that Arrow keeps, in the column's own unit. Decimals,
structs, maps, unions and intervals cannot be features as they are.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    shape_text,
)

INTEGER, BOOL, TIME, FLOAT, BYTES, NULL = range(6)

_FAMILIES = {
    INTEGER: "INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64",
    BOOL: "BOOL",
    TIME: "DATE32 DATE64 TIME32 TIME64 TIMESTAMP DURATION",
    FLOAT: "HALF_FLOAT FLOAT DOUBLE",
    BYTES: "STRING LARGE_STRING STRING_VIEW BINARY LARGE_BINARY BINARY_VIEW "
    "FIXED_SIZE_BINARY",
    NULL: "NA",
}
_FAMILY = {
    getattr(pa.lib, f"Type_{name}"): family
    for family, names in _FAMILIES.items()
    for name in names.split()
}
_LISTS = {
    getattr(pa.lib, f"Type_{name}")
    for name in (
        "LIST",
        "LARGE_LIST",
        "FIXED_SIZE_LIST",
        "LIST_VIEW",
        "LARGE_LIST_VIEW",
    )
}
_DECIMALS = {
    getattr(pa.lib, f"Type_DECIMAL{bits}")
    for bits in (32, 64, 128, 256)
    if hasattr(pa.lib, f"Type_DECIMAL{bits}")
}
_STORED_AS = {
    INTEGER: Kind.INT64,
    BOOL: Kind.INT64,
    TIME: Kind.INT64,
    FLOAT: Kind.FLOAT,
    BYTES: Kind.BYTES,
}


def check_types(arrow_schema: pa.Schema, schema: Schema) -> None:
    """Checks that every feature can be made from its column.

    Raises:
      SchemaError: a column is missing or there twice, or has a type that its feature
        cannot take; all such columns are named.
    """
    problems = []
    for feature in schema.features:
        try:
            require_column(arrow_schema, feature)
        except SchemaError as error:
            problems.append(str(error))
            continue
        arrow_type = arrow_schema.field(feature.column).type
        problem = value_problem(arrow_type, feature) or depth_problem(
            arrow_type, feature
        )
        if problem:
            problems.append(": ".join(problem))
    if problems:
        raise SchemaError("\n".join(problems))


def require_column(arrow_schema: pa.Schema, feature: FeatureSpec) -> None:
    """Checks that the feature's column is there, once.

    Raises:
      SchemaError: if not.
    """
    if arrow_schema.get_field_index(feature.column) < 0:
        names = arrow_schema.names
        found = "two columns" if feature.column in names else "no column"
        raise SchemaError(
            f"feature {feature.name!r}: {found} {feature.column!r} in {', '.join(names)}"
        )


def value_problem(
    arrow_type: pa.DataType, feature: FeatureSpec
) -> tuple[str, str] | None:
    """Returns why the innermost values cannot be the feature's, and the way out."""
    depth, leaf = _take_apart(arrow_type)
    family = _FAMILY.get(leaf.id)
    if family == NULL or family in _accepted(feature, depth):
        return None
    return (
        f"feature {feature.name!r}: {_holder(feature)} cannot hold column "
        f"{feature.column!r} of type {leaf}",
        _way_out(leaf),
    )


def depth_problem(
    arrow_type: pa.DataType, feature: FeatureSpec
) -> tuple[str, str] | None:
    """Returns why the lists cannot have the feature's shape, and the way out."""
    depth, leaf = _take_apart(arrow_type)
    family = _FAMILY.get(leaf.id)
    fewest, most = list_depths(feature, of_bytes=family == BYTES)
    if family == NULL:
        fewest = 0
    if fewest <= depth <= most:
        return None
    needed = f"{fewest} to {most}" if most > fewest else str(most)
    steps = ", a list of steps included" if feature.sequence else ""
    return (
        f"feature {feature.name!r}: column {feature.column!r} of type {arrow_type} has "
        f"list depth {depth}, shape {shape_text(feature.shape)} asks for {needed}{steps}",
        "declare the shape that the column has",
    )


def list_depths(feature: FeatureSpec, *, of_bytes: bool) -> tuple[int, int]:
    """Returns how many lists may be nested in the feature's column, fewest and most.

    The innermost list may hold several dimensions row by row (row-major), as long as
    no two of them are unknown.
    """
    steps = 1 if feature.sequence else 0
    whole = feature.content is Content.ARRAY and of_bytes  # the array's bytes
    if feature.content is Content.IMAGE or whole or not feature.shape:
        return steps, steps
    unknown = [i for i, size in enumerate(feature.shape) if size is None]
    fewest = 1
    if feature.is_ragged:
        fewest = unknown[-1] + 1
    elif len(unknown) > 1:
        fewest = unknown[-2] + 2
    return steps + fewest, steps + len(feature.shape)


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """Returns the type behind extension types, dictionaries and run-end encoding."""
    while True:
        if isinstance(arrow_type, pa.BaseExtensionType):
            arrow_type = arrow_type.storage_type
        elif arrow_type.id in (pa.lib.Type_DICTIONARY, pa.lib.Type_RUN_END_ENCODED):
            arrow_type = arrow_type.value_type
        else:
            return arrow_type


def plain(array: pa.Array) -> pa.Array:
    """Returns the array behind an extension type, a dictionary or run-end encoding.

    Views of text and bytes become arrays with offsets: most of Arrow's functions take
    no views.
    """
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif array.type.id == pa.lib.Type_DICTIONARY:
            array = array.dictionary_decode()
        elif array.type.id == pa.lib.Type_RUN_END_ENCODED:
            array = pc.run_end_decode(array)
        elif array.type.id == pa.lib.Type_STRING_VIEW:
            array = array.cast(pa.large_string())
        elif array.type.id == pa.lib.Type_BINARY_VIEW:
            array = array.cast(pa.large_binary())
        else:
            return array


def is_list(arrow_type: pa.DataType) -> bool:
    """Returns whether it is one of Arrow's list types."""
    return arrow_type.id in _LISTS


def is_text(arrow_type: pa.DataType) -> bool:
    """Returns whether it is one of Arrow's string types."""
    ids = pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW
    return arrow_type.id in ids


def family_of(arrow_type: pa.DataType) -> int | None:
    """Returns INTEGER, BOOL, TIME, FLOAT, BYTES or NULL; None for any other type."""
    return _FAMILY.get(arrow_type.id)


def _take_apart(arrow_type: pa.DataType) -> tuple[int, pa.DataType]:
    """Returns how deep lists are nested, and the plain type of the innermost values."""
    depth, leaf = 0, plain_type(arrow_type)
    while is_list(leaf):
        depth, leaf = depth + 1, plain_type(leaf.value_type)
    return depth, leaf


def _accepted(feature: FeatureSpec, depth: int) -> set[int]:
    """Returns the families of types that the feature's values may have."""
    if feature.content in (Content.TENSOR, Content.ARRAY):
        accepted = _accepted_by_dtype(feature.dtype)
        if feature.content is Content.ARRAY and depth == int(feature.sequence):
            accepted = accepted | {BYTES}
        return accepted
    if feature.kind is Kind.BYTES:
        return {BYTES}
    if feature.kind is Kind.FLOAT:
        # Integers only where they are declared: beyond 2**24 float32 has gaps.
        by_dtype = _accepted_by_dtype(feature.dtype)
        return by_dtype | {BOOL} if INTEGER in by_dtype else by_dtype
    return {INTEGER, BOOL, TIME}


def _accepted_by_dtype(dtype: str) -> set[int]:
    if dtype in ("string", "bytes"):
        return {BYTES}
    if dtype == "bool":
        return {BOOL}
    return {FLOAT} if dtype.startswith("float") else {INTEGER, TIME}


def _holder(feature: FeatureSpec) -> str:
    if feature.content in (Content.TENSOR, Content.ARRAY):
        return f"{feature.content} of {feature.dtype}"
    return str(feature.kind)


def _way_out(leaf: pa.DataType) -> str:
    if leaf.id in _DECIMALS:
        return "declare its dtype, a float, an integer or string"
    family = _FAMILY.get(leaf.id)
    if family is None:
        return "leave it out, or give its parts as columns of their own"
    return f"declare a dtype that fits, {_STORED_AS[family]} can hold the column"
