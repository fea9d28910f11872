"""Defines DeclaredSchema, the features that a schema file declares.

    features:
      image:  {column: path, bytes_from: path, picture: {format: jpeg}}
      label:  {dtype: int64, classes: [cat, dog]}
      boxes:  {dtype: float32, shape: [null, 4], cell: json}
      note:   string?            # short for {dtype: string, optional: true}
      size:   int64[2]           # short for {dtype: int64, shape: [2]}
      tags:   string[]           # short for {dtype: string, shape: [null]}

A field that is not declared has a default that depends on the other fields. So two
declarations with the same meaning are equal after parsing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    usual_kind,
)
from recordmill.schemas.text import escape_surrogates

Dtype = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "string",
    "bytes",
]
StorageName = Literal["int64_list", "float_list", "bytes_list", "tensor"]
Cell = Literal["plain", "json", "hex", "base64"]
Unit = Literal["d", "s", "ms", "us", "ns"]
ImageFormat = Literal["jpeg", "png", "gif", "bmp", "webp", "tiff"]
Dimension = Annotated[int, Field(ge=0, lt=1 << 31)] | None
Bound = Annotated[float, Field(allow_inf_nan=False)] | int
Side = Annotated[int, Field(ge=1, lt=1 << 31)]

_SIDE = r" *(?:(?:\d+|\?) *)?"
SHAPE_FORM = rf"\[{_SIDE}(?:,{_SIDE})*\]"  # pattern of a shape in the short form
_SHORT_FORM = re.compile(
    rf"(?P<dtype>[a-z]+\d*)(?P<shape>{SHAPE_FORM})?(?P<optional>\?)?", re.ASCII
)


class FrozenModel(BaseModel):
    """An immutable model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageRule(FrozenModel):
    """A rule for size, channels and format of images; other images are rejected.

    None allows anything.
    """

    height: Side | None = Field(None, description="pixels")
    width: Side | None = Field(None, description="pixels")
    channels: Annotated[int, Field(ge=1, le=4)] | None = Field(
        None, description="number of channels, as TensorFlow decoders report it"
    )
    format: ImageFormat | None = None
    decodable: bool = Field(
        True,
        description="whether readers get pixels; false if GIF, WebP or TIFF are among "
        "the images, because no single TensorFlow op decodes all of them",
    )

    @property
    def stores_pixels(self) -> bool:
        """Returns whether one TensorFlow op decodes all images to one rank."""
        return self.decodable and self.format not in ("gif", "webp", "tiff")


class DeclaredFeature(FrozenModel):
    """A declared feature: the source, type and storage of its values."""

    column: str = Field("", description="source column; the feature's name if empty")
    dtype: Dtype = "bytes"
    shape: tuple[Dimension, ...] = Field(
        (), description="shape of one value: [] scalar, [3] fixed, [null] variable"
    )
    stored: StorageName | None = Field(
        None, description="how the value is stored; derived from the dtype by default"
    )
    optional: bool = Field(
        False, description="leave the feature out of an example if its value is missing"
    )
    default: Any = Field(None, description="value to use if the column has none")
    classes: tuple[str, ...] = Field(
        (), description="class names in the order of the class index"
    )
    min: Bound | None = Field(None, description="lowest value allowed")
    max: Bound | None = Field(None, description="highest value allowed")
    picture: ImageRule | None = None
    unit: Unit | None = Field(
        None, description="unit of dates and times stored as int64"
    )
    separator: str = Field("", description="separator of the values in a text cell")
    null_values: tuple[str, ...] = Field(
        (),
        description="texts of cells that are missing values, in addition to empty "
        "cells",
    )
    decimal: Literal["point", "comma"] = Field(
        "point", description="decimal separator of text cells"
    )
    cell: Cell = Field("plain", description="encoding of the value in a text cell")
    bytes_from: Literal["", "path"] = Field(
        "", description="path: the column names a file; its bytes are the value"
    )
    sequence: bool = Field(
        False, description="a feature list of a SequenceExample: one value per step"
    )
    nested: bool = Field(
        False,
        description="one value per object, such as objects/label next to objects/bbox; "
        "TFDS reads these as a list of dicts",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, declaration: Any) -> Any:
        """Expands short forms, and adds the dtype that `classes` implies."""
        if isinstance(declaration, str):
            return _from_short_form(declaration)
        if (
            isinstance(declaration, dict)
            and "dtype" not in declaration
            and declaration.get("classes")
        ):
            return {**declaration, "dtype": "int64"}
        return declaration

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        numeric = self.dtype not in ("string", "bytes")
        if self.optional and self.default is not None:
            raise ValueError("a feature with a default is never missing: drop optional")
        if self.classes and self.dtype not in ("int64", "int32", "int16", "int8"):
            raise ValueError(f"classes need a signed integer dtype, got {self.dtype}")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("class names must differ")
        if (self.min is not None or self.max is not None) and not numeric:
            raise ValueError(f"min and max require numbers, got dtype {self.dtype}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        if self.unit and self.dtype != "int64":
            raise ValueError(f"unit needs dtype int64, got {self.dtype}")
        if (self.picture or self.bytes_from) and self.dtype != "bytes":
            raise ValueError(f"images and files are bytes, got dtype {self.dtype}")
        if (self.picture or self.bytes_from) and self.shape:
            raise ValueError("an image or a file is one value: leave out the shape")
        if self.cell in ("hex", "base64") and self.dtype != "bytes":
            raise ValueError(f"{self.cell} cells contain bytes, got dtype {self.dtype}")
        listed = self.shape or self.sequence
        if self.separator and (self.cell == "json" or not listed):
            raise ValueError(
                "separator requires a plain list: set shape, and no cell: json"
            )
        if self.decimal == "comma" and (not numeric or self.separator == ","):
            raise ValueError(
                "a decimal comma requires numbers, and another separator for lists"
            )
        self._check_stored(numeric)
        return self

    def _check_stored(self, numeric: bool) -> None:
        allowed: set[str] = {"bytes_list", "tensor"}
        if self.dtype.startswith("float"):
            allowed.add("float_list")
        elif numeric:
            allowed |= {"int64_list", "float_list"}
        if self.dtype == "bytes" and self.content is not Content.VALUES:
            allowed = {"bytes_list"}
        if self.storage not in allowed:
            raise ValueError(
                f"{self.dtype} cannot be stored as {self.storage}; it can be "
                f"{', '.join(sorted(allowed))}"
            )
        if self.content is Content.ARRAY and self.shape.count(None) > 1:
            raise ValueError(
                "a bytes_list can have one unknown dimension: set stored: tensor"
            )

    @property
    def storage(self) -> str:
        """Returns the storage of the feature: `stored`, or the default for its dtype."""
        return self.stored or str(usual_kind(self.dtype))

    @property
    def content(self) -> Content:
        """Returns the meaning of the stored values."""
        if self.picture is not None:
            return Content.IMAGE
        if self.storage == "tensor":
            return Content.TENSOR
        if self.storage == "bytes_list" and self.dtype not in ("string", "bytes"):
            return Content.ARRAY
        return Content.VALUES

    def to_spec(self, name: str) -> FeatureSpec:
        """Returns the feature for the encoder, the manifest and the readers.

        Its column is its name, because several features can share one source column.
        """
        kind = Kind.BYTES if self.storage == "tensor" else Kind(self.storage)
        dtype: str = self.dtype
        shape = self.shape
        if (rule := self.picture) and rule.stores_pixels:
            # As in the source of images, the dtype and shape describe the pixels.
            dtype, shape = "uint8", (rule.height, rule.width, rule.channels)
        return FeatureSpec(
            name,
            kind,
            dtype=dtype,
            shape=shape,
            content=self.content,
            optional=self.optional,
            class_names=self.classes,
            minimum=self.min,
            maximum=self.max,
            is_sequence=self.sequence,
            is_nested=self.nested,
        )


class DeclaredSchema(FrozenModel):
    """The declared features of the examples; other columns are dropped."""

    features: dict[Annotated[str, Field(min_length=1)], DeclaredFeature] = Field(
        min_length=1
    )

    def to_schema(self) -> Schema:
        """Returns the schema of the records."""
        return Schema(tuple(f.to_spec(name) for name, f in self.features.items()))

    def with_decimal_commas(self) -> Self:
        """Returns the schema with a decimal comma for numbers without `decimal`."""
        features = {
            name: feature.model_copy(update={"decimal": "comma"})
            if feature.dtype.startswith(("float", "int", "uint"))
            and not feature.model_fields_set & {"decimal", "classes", "unit"}
            and feature.separator != ","
            else feature
            for name, feature in self.features.items()
        }
        return self.model_copy(update={"features": features})

    def column_of(self, name: str) -> str:
        """Returns the source column of a feature."""
        return self.features[name].column or name


def _from_short_form(text: str) -> dict[str, Any]:
    match = _SHORT_FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"the short form is like int64, float32[3], string[] or int64?, got {text!r}"
        )
    fields: dict[str, Any] = {
        "dtype": match["dtype"],
        "optional": bool(match["optional"]),
    }
    if match["shape"] is not None:
        sides = [side.strip() for side in match["shape"][1:-1].split(",")]
        fields["shape"] = [None if side in ("", "?") else int(side) for side in sides]
    return fields


def declare_schema(schema: Schema) -> DeclaredSchema:
    """Returns a declaration from which `to_schema` creates an equal schema."""
    return DeclaredSchema(
        features={feature.name: declare_feature(feature) for feature in schema.features}
    )


def declare_feature(spec: FeatureSpec) -> DeclaredFeature:
    """Returns the shortest declaration of one feature."""
    fields: dict[str, Any] = {
        "dtype": spec.dtype,
        "shape": spec.shape,
        "stored": str(spec.kind),
        "optional": spec.optional,
        "classes": spec.class_names,
        "min": spec.minimum,
        "max": spec.maximum,
        "sequence": spec.is_sequence,
        "nested": spec.is_nested,
    }
    if spec.column != spec.name:
        fields["column"] = spec.column
    if spec.content is Content.TENSOR:
        fields["stored"] = "tensor"
    elif spec.content is Content.IMAGE:
        fields |= {"dtype": "bytes", "shape": ()}
        fields["picture"] = {"decodable": False}
        if spec.dtype != "bytes":
            height, width, channels = spec.shape
            fields["picture"] = {"height": height, "width": width, "channels": channels}
    feature = DeclaredFeature.model_validate(fields)
    if feature.model_copy(update={"stored": None}).storage == feature.stored:
        fields["stored"] = None
    return DeclaredFeature.model_validate(fields)


KeyPath = tuple[str | int, ...]

_MAX_PROBLEMS = 20
_PYDANTIC_PREFIX = re.compile(r"^\w+ should (be )?")
_FOUND_CHARACTERS = 60
_PYDANTIC_PATH_ELEMENTS = ("int", "float", "[key]")  # pydantic's own path elements


def parse_declared(
    declaration: Any, uri: str, line_of: Callable[[KeyPath], int] | None = None
) -> DeclaredSchema:
    """Validates plain values, {"features": {name: fields or text}}, as a declaration.

    Args:
      declaration: The plain values.
      uri: URI of the file, for messages.
      line_of: Function that returns the line of a part of the file.

    Raises:
      SchemaError: the declaration is invalid, with a line for each problem.
    """
    try:
        return DeclaredSchema.model_validate(declaration)
    except ValidationError as error:
        problems: dict[KeyPath, str] = {}
        for detail in error.errors():
            place, is_unknown = detail["loc"], detail["type"] == "extra_forbidden"
            if place[2:] and place[-1] in _PYDANTIC_PATH_ELEMENTS and not is_unknown:
                place = place[:-1]
            line = f"line {line_of(place)}: " if line_of else ""
            problems.setdefault(place, f"{line}{_describe_error(place, detail)}")
    raise SchemaError(format_problems(uri, list(problems.values())))


def format_problems(uri: str, problems: Sequence[str]) -> str:
    """Formats the problems of a file, or of options if `uri` is "", with a line each."""
    file = f"{uri}: " if uri else ""
    if len(problems) == 1:
        return f"{file}{problems[0]}"
    lines = [f"{file}{len(problems)} problems:", *problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"... and {len(problems) - _MAX_PROBLEMS} more")
    return "\n  ".join(lines)


def describe_unknown_field(name: str, known_names: Iterable[str]) -> str:
    """Returns the message about an unknown field, with the most similar known name."""
    names = list(known_names)
    similar_names = get_close_matches(name, names, 1)
    hint = (
        f"did you mean {similar_names[0]}?"
        if similar_names
        else f"expected one of {', '.join(names)}"
    )
    return f"unknown field {name!r}; {hint}"


_INTEGERS = ("int_type", "int_parsing", "int_from_float")
_EXPECTED_TEXTS = {  # by pydantic's type of error; placeholders refer to its context
    "literal_error": "{expected}",
    "tuple_type": "a list",
    "string_type": "text",
    **dict.fromkeys(_INTEGERS, "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("model_type", "dict_type", "dataclass_type"), "a mapping"),
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    **dict.fromkeys(("string_too_short", "too_short"), "{min_length} or more"),
    **dict.fromkeys(("string_too_long", "too_long"), "at most {max_length}"),
    "int_parsing_size": "a whole number of fewer digits",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def describe_mismatch(detail: ErrorDetails) -> str:
    """Formats an error of pydantic as the expected and the actual value."""
    kind, actual_text = detail["type"], f", found {_format_value(detail['input'])}"
    if words := _EXPECTED_TEXTS.get(kind):
        return f"expected {words.format(**detail.get('ctx', {}))}{actual_text}"
    match kind:
        case "missing":
            return "not given"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "string_unicode":
            shown_text = escape_surrogates(str(detail["input"]))
            return (
                f"expected UTF-8, found {shown_text}; rename it, or choose another name"
            )
        case "recursion_depth_exceeded" | "recursion_loop":
            return "expected fewer nested levels"
        case "extra_forbidden":
            return "unknown field"
        case "json_invalid":
            return f"not valid JSON: {detail['ctx']['error']}"
    # Others: "Input should be a finite number", "Tuple should have at least 1 item".
    message = _PYDANTIC_PREFIX.sub("", detail["msg"]).removeprefix("a valid ")
    return f"expected {message[:1].lower()}{message[1:]}{actual_text}"


def _describe_error(place: KeyPath, detail: ErrorDetails) -> str:
    steps = list(place)
    unknown_name = steps.pop() if detail["type"] == "extra_forbidden" else None
    words = list(map(str, steps))
    if steps[:1] == ["features"]:
        path_elements = (
            f"item {s + 1}" if isinstance(s, int) else s for s in steps[2:]
        )
        feature = f"feature {steps[1]!r}" if len(steps) > 1 else "features"
        words = [feature, *path_elements]
    if unknown_name is not None:
        models: dict[int, type[BaseModel]] = {0: DeclaredSchema, 2: DeclaredFeature}
        known_fields = models.get(len(steps), ImageRule).model_fields
        problem = describe_unknown_field(str(unknown_name), known_fields)
    elif detail["type"] in ("model_type", "dict_type") and len(steps) == 2:
        actual_text = _format_value(detail["input"])
        problem = (
            f"expected a short form like int64[2]? or its fields, found {actual_text}"
        )
    elif detail["type"] == "too_short":
        problem = "expected at least one feature, found none"
    elif detail["type"] == "string_too_short":
        problem = "a feature needs a name, found an empty one"
    else:
        problem = describe_mismatch(detail)
    return ": ".join([*words, problem])


def _format_value(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    fits = len(text) <= _FOUND_CHARACTERS
    return text if fits else f"{text[: _FOUND_CHARACTERS - 3]}..."
