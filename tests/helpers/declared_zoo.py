"""Declared schemas of every sort, for hypothesis."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import reject
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.schemas.declared import (
    Cell,
    DeclaredFeature,
    DeclaredSchema,
    Dtype,
    ImageFormat,
    StorageName,
    Unit,
)
from recordmill.schemas.errors import SchemaError

# Text that YAML or a text proto could take for something else.
TRAPS = (
    *("no", "Yes", "on", "null", "~", "true", "1e-3", "1_000", "007", "0o7", "0x1F"),
    *("12:30", "2024-01-01", ".inf", ".nan", "=", "<<", "", " a", "a ", "- a", "? a"),
    *("a: b", "a #b", "#a", "'", '"', "\\", "%a", "@a", "!a", "&a", "*a", "[a", "{a"),
    *("a\nb", "\ta", "a\x85b", "a\u2028b", "\ufeff", "\x00", "\x7f", "山羊", "😀"),
)
TEXTS = st.sampled_from(TRAPS) | st.text(max_size=20)
NAMES = st.text(min_size=1, max_size=20) | st.sampled_from(
    [*(trap for trap in TRAPS if trap), "image/object/bbox", "x" * 130, "##SEQUENCE##"]
)
SIZES = st.integers(0, 9) | st.integers(0, (1 << 31) - 1)
BOUNDS = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, 1.0, 0.1, -(1 << 63), (1 << 64) - 1, 10**400])
)
SCALARS = (
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(max_size=9)
)
DEFAULTS = st.none() | SCALARS | st.lists(st.none() | SCALARS | st.lists(SCALARS))
SIDES = st.none() | st.integers(1, 4)


@st.composite
def declared_features(draw: st.DrawFn) -> DeclaredFeature:
    dtype = draw(st.sampled_from(get_args(Dtype)))
    shape = st.lists(st.none() | SIZES, max_size=4)
    given: dict[str, Any] = {"dtype": dtype, "shape": draw(shape)}
    offered: dict[str, st.SearchStrategy[Any]] = {
        "column": TEXTS,
        "stored": st.sampled_from(get_args(StorageName)),
        "optional": st.booleans(),
        "default": DEFAULTS,
        "separator": TEXTS,
        "null_values": st.lists(TEXTS, max_size=3),
        "decimal": st.sampled_from(["point", "comma"]),
        "cell": st.sampled_from(get_args(Cell)),
        "sequence": st.booleans(),
    }
    if dtype in ("string", "bytes"):
        # The text of a number is text here: a file cannot say a number.
        offered["default"] = st.none() | TEXTS | st.binary(max_size=9)
    else:
        offered |= {"min": BOUNDS, "max": BOUNDS}
    if dtype == "bytes":
        image = dict.fromkeys(("height", "width", "channels"), SIDES)
        formats = st.none() | st.sampled_from(get_args(ImageFormat))
        offered["picture"] = st.fixed_dictionaries(image | {"format": formats})
        offered["bytes_from"] = st.just("path")
    if dtype.startswith("int"):
        offered["classes"] = st.lists(TEXTS, min_size=1, max_size=5, unique=True)
    if dtype == "int64":
        offered["unit"] = st.sampled_from(get_args(Unit))
    chosen = draw(st.sets(st.sampled_from(sorted(offered)), max_size=4))
    given |= {name: draw(offered[name]) for name in sorted(chosen)}
    try:
        return DeclaredFeature.model_validate(given)
    except ValidationError:
        reject()


@st.composite
def declared_schemas(draw: st.DrawFn) -> DeclaredSchema:
    features = draw(st.dictionaries(NAMES, declared_features(), min_size=1, max_size=4))
    schema = DeclaredSchema(features=features)
    try:
        schema.to_schema()
    except SchemaError:
        reject()  # two features would share a key of the example
    return schema
