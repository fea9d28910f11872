from __future__ import annotations

import textwrap
from typing import Any

import pytest
import yaml
from declared_zoo import declared_schemas
from example_counts import examples
from hypothesis import given

from recordmill.schemas.declared import DeclaredFeature, DeclaredSchema, ImageRule
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.schema_file import dump_yaml, load_schema
from recordmill.schemas.yaml_lines import YamlDocument


def load(text: str, uri: str = "s.yaml") -> DeclaredSchema:
    return load_schema(textwrap.dedent(text).encode(), uri)


def feature(text: str) -> DeclaredFeature:
    return load(f"features: {{x: {text}}}").features["x"]


EVERYTHING = """\
# flowers
# 2 columns
features:
  image: {column: path, picture: {format: jpeg}, bytes_from: path}
  label: {dtype: int64, classes: [cat, dog]}
  # 0.1 % missing
  #
  # a tab: \\t
  note: string?
  boxes: {dtype: float32, shape: [null, 4], min: 0.0, max: 1.0, cell: json}
  size: int64[2]
  grid: float32[?,4,?]
  tags: string[]
  blob: bytes
  month:
    dtype: int8
    default: January is the first
    classes:
    - January is the first
    - February is the second
    - March is the third month
    - 'no'
"""
MONTHS = (
    "January is the first",
    "February is the second",
    "March is the third month",
    "no",
)
EVERYTHING_SCHEMA = DeclaredSchema(
    features={
        "image": DeclaredFeature(column="path", bytes_from="path", picture=ImageRule(format="jpeg")),
        "label": DeclaredFeature(dtype="int64", classes=("cat", "dog")),
        "note": DeclaredFeature(dtype="string", optional=True),
        "boxes": DeclaredFeature(dtype="float32", shape=(None, 4), min=0.0, max=1.0, cell="json"),
        "size": DeclaredFeature(dtype="int64", shape=(2,)),
        "grid": DeclaredFeature(dtype="float32", shape=(None, 4, None)),
        "tags": DeclaredFeature(dtype="string", shape=(None,)),
        "blob": DeclaredFeature(),
        "month": DeclaredFeature(dtype="int8", classes=MONTHS, default=MONTHS[0]),
    }
)  # fmt: skip


def test_load() -> None:
    assert load(EVERYTHING) == EVERYTHING_SCHEMA


def test_dump() -> None:
    comments = {"note": ["0.1 % missing", "", "a tab: \t"], "nothing": ["not here"]}
    text = dump_yaml(EVERYTHING_SCHEMA, comments, ["flowers", "2 columns"])
    assert text == EVERYTHING


@examples(400)
@given(declared_schemas())
def test_load_gives_back_what_dump_wrote(schema: DeclaredSchema) -> None:
    text = dump_yaml(schema, {name: [name, "x"] for name in schema.features}, ["y"])
    assert load(text) == schema
    # PyYAML's own loader, of YAML 1.1, is the oracle for the values.
    data = text.encode()
    assert yaml.safe_load(data) == YamlDocument(data, "s.yaml").value


def test_dump_refuses_what_no_file_can_hold() -> None:
    schema = DeclaredSchema(features={"x": DeclaredFeature(default=object())})
    with pytest.raises(SchemaError, match=r"^feature 'x': cannot be written: "):
        dump_yaml(schema)


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("[yes, no]", ("yes", "no")),  # YAML 1.1 has truth values here
        ("[on, off, y, n]", ("on", "off", "y", "n")),
        ("[true, False]", ("true", "False")),
        ("[0, 1]", ("0", "1")),
        ("[007, 1.50, 1e-3, 0x1F]", ("007", "1.50", "1e-3", "0x1F")),
        ("[2024-01-01, 12:30]", ("2024-01-01", "12:30")),
        ('["null", "~", ""]', ("null", "~", "")),
        ("[a b, 'it''s', \"\\u00e9\"]", ("a b", "it's", "é")),
        ("[山羊]", ("山羊",)),
    ],
)
def test_class_names_are_text(text: str, classes: tuple[str, ...]) -> None:
    assert feature(f"{{classes: {text}}}").classes == classes


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("{dtype: string, default: 5}", "5"),
        ("{dtype: string, default: no}", "no"),
        ("{dtype: bytes, default: 007}", "007"),
        ("{default: true}", True),  # no dtype: is refused when it is used
        ("{dtype: bytes, default: !!binary AP8=}", b"\x00\xff"),
        ("{dtype: string, shape: [null], default: [1, no]}", ["1", "no"]),
        ("{dtype: string, default: null}", None),
        ("{dtype: int64, default: 5}", 5),
        ("{dtype: int64, default: 0x1F}", 31),
        ("{dtype: int64, default: 18446744073709551616}", 1 << 64),
        ("{dtype: int64, default: 007}", "007"),  # as a number it would lose zeros
        ("{dtype: float32, default: 1e-3}", 0.001),  # text in YAML 1.1
        ("{dtype: float32, default: .5}", 0.5),
        ("{dtype: float32, default: -.inf}", float("-inf")),
        ("{dtype: float32, shape: [2], default: [1, 2.5]}", [1, 2.5]),
        ("{dtype: bool, default: false}", False),
        ("{dtype: int64, classes: [yes, no], default: no}", "no"),
    ],
)
def test_default(text: str, default: Any) -> None:
    found = feature(text).default
    assert found == default
    assert type(found) is type(default)


def test_text_is_as_written() -> None:
    found = feature(
        "{dtype: float32, shape: [null], column: 3, separator: 0, min: 1e1}"
    )
    assert (found.column, found.separator, found.min) == ("3", "0", 10.0)
    names = load("features: {no: int8, 1: int8, null: int8, 1.0: int8}").features
    assert list(names) == ["no", "1", "null", "1.0"]
    for word in ("yes", "true", "no"):  # where a truth value is due
        found = feature(f"{{dtype: int8, optional: {word}}}")
        assert found.optional is (word != "no")


def test_anchors_stand_for_what_they_name() -> None:
    side = "xmin: &side {dtype: float32, shape: [null], max: 1}"
    features = load(f"features:\n  {side}\n  xmax: *side\n").features
    assert features["xmin"] == features["xmax"]


WRONG = [
    # Not YAML at all.
    ("", "s.yaml: is empty"),
    ("# nothing\n", "s.yaml: is empty"),
    ("features:\n\ta: int8\n", "s.yaml: line 2, column 1: not valid YAML: while scanning for the next token, found character '\\t' that cannot start any token"),
    ("features:\n  a: [1\n", "s.yaml: line 3, column 1: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"),
    ("a: 1\n---\nb: 2\n", "s.yaml: line 2, column 1: not valid YAML: expected a single document in the stream, but found another document"),
    ("a: 1\nb: \x01\n", "s.yaml: line 2: not valid YAML: the character U+0001 is not allowed"),
    ("[" * 3000, "s.yaml: line 1, column 101: not valid YAML: lists or mappings nested more than "
        "100 levels deep"),
    # YAML that must not be read in silence.
    ("features:\n  a: int8\n  b: int8\n  a: int16\n", "s.yaml: line 4: 'a' is given twice, first on line 2"),
    ("features:\n  a: {dtype: int8,\n    dtype: int16}\n", "s.yaml: line 3: 'dtype' is given twice, first on line 2"),
    ("features: !!python/object/apply:os.system [ls]\n", "s.yaml: line 1: the tag !!python/object/apply:os.system is not supported"),
    ("features:\n  a: !thing x\n", "s.yaml: line 2: the tag !thing is not supported"),
    ("features:\n  a: {default: !!int x}\n", "s.yaml: line 2: 'x' is not a valid int"),
    ("features:\n  a: {default: !!binary x}\n", "s.yaml: line 2: 'x' is not a valid binary"),
    ("features: &all\n  a: *all\n", "s.yaml: line 1: aliases that contain themselves, or too many aliases"),
    ("features:\n  [a]: int8\n", "s.yaml: line 2: a key must be text, found a list or a mapping"),
    # Not a schema.
    ("- a\n", "s.yaml: line 1: expected a mapping, found ['a']"),
    ("features: {}\n", "s.yaml: line 1: features: expected at least one feature, found none"),
    ("features: int8\n", "s.yaml: line 1: features: expected a mapping, found 'int8'"),
    ("feature:\n  a: int8\n", "s.yaml: 2 problems:\n  line 1: features: not given\n  line 1: unknown field 'feature'; did you mean features?"),
    # One feature that is wrong: which, what was found, what is expected.
    ("features:\n  a: int8\n  b:\n", "s.yaml: line 3: feature 'b': expected a short form like int64[2]? or its fields, found nothing"),
    ("features:\n  a: [int8]\n", "s.yaml: line 2: feature 'a': expected a short form like int64[2]? or its fields, found ['int8']"),
    ("features:\n  a: int8[2\n", "s.yaml: line 2: feature 'a': the short form is like int64, float32[3], string[] or int64?, got 'int8[2'"),
    ("features:\n  a: int8[1 2]\n", "s.yaml: line 2: feature 'a': the short form is like int64, float32[3], string[] or int64?, got 'int8[1 2]'"),
    ("features:\n  '': int8\n", "s.yaml: line 2: feature '': a feature needs a name, found an empty one"),
    ("features:\n  a:\n    dtype: int8\n    optinal: true\n", "s.yaml: line 4: feature 'a': unknown field 'optinal'; did you mean optional?"),
    ("features:\n  a: {picture: {hight: 3}}\n", "s.yaml: line 2: feature 'a': picture: unknown field 'hight'; did you mean height?"),
    ("features:\n  a: {picture: {xyz: 3}}\n", "s.yaml: line 2: feature 'a': picture: unknown field 'xyz'; expected one of height, width, channels, format, decodable"),
    ("features:\n  a: {picture: {channels: 5}}\n", "s.yaml: line 2: feature 'a': picture: channels: expected 4 or less, found 5"),
    ("features:\n  a: {bytes_from: path, shape: [1]}\n", "s.yaml: line 2: feature 'a': an image or a file is one value: leave out the shape"),
    ("features:\n  a: {unit: m}\n", "s.yaml: line 2: feature 'a': unit: expected 'd', 's', 'ms', 'us' or 'ns', found 'm'"),
    ("features:\n  a: {dtype: int8, shape: 3}\n", "s.yaml: line 2: feature 'a': shape: expected a list, found 3"),
    ("features:\n  a:\n    dtype: int8\n    shape:\n    - 3\n    - x\n", "s.yaml: line 6: feature 'a': shape: item 2: expected a whole number, found 'x'"),
    ("features:\n  a: {dtype: int8, shape: [-1]}\n", "s.yaml: line 2: feature 'a': shape: item 1: expected 0 or more, found -1"),
    ("features:\n  a: {classes: [x, ~]}\n", "s.yaml: line 2: feature 'a': classes: item 2: expected text, found nothing"),
    ("features:\n  a: {classes: [x, [y]]}\n", "s.yaml: line 2: feature 'a': classes: item 2: expected text, found ['y']"),
    ("features:\n  a: {dtype: int8, min: low}\n", "s.yaml: line 2: feature 'a': min: expected a number, found 'low'"),
    ("features:\n  a: {dtype: int8, min: .nan}\n", "s.yaml: line 2: feature 'a': min: expected a finite number, found nan"),
    ("features:\n  a: {dtype: int8, min: 2, max: 1}\n", "s.yaml: line 2: feature 'a': min 2 is above max 1"),
    ("features:\n  a: {classes: [yes, yes]}\n", "s.yaml: line 2: feature 'a': class names must differ"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load_schema(text.encode(), "s.yaml")
    assert str(caught.value) == message


def test_dtype_that_does_not_exist() -> None:
    """In the short form too, the dtypes are told."""
    said = (
        r"^s.yaml: line 1: feature 'x': dtype: expected 'bool', 'int8', .*found 'int9'$"
    )
    for text in ("int9", "{dtype: int9}"):
        with pytest.raises(SchemaError, match=said):
            feature(text)


def test_every_problem_is_told_up_to_a_limit() -> None:
    with pytest.raises(SchemaError) as caught:
        load("features:\n  a: int9\n  b: {shape: x}\n  c: {classes: [a, a]}\n")
    first, *others = str(caught.value).split("\n  ")
    assert first == "s.yaml: 3 problems:"
    assert [line.partition(":")[0] for line in others] == ["line 2", "line 3", "line 4"]
    with pytest.raises(SchemaError) as caught:
        load("features:\n" + "".join(f"  f{n}: int9\n" for n in range(30)))
    first, *others = str(caught.value).split("\n  ")
    assert (first, others[-1]) == ("s.yaml: 30 problems:", "... and 10 more")
    assert len(others) == 20 + 1


def test_aliases_that_stand_for_more_than_memory_holds() -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(SchemaError, match=r"aliases that contain themselves, or too"):
        load("\n".join(layers))


def test_aliases_inside_one_another_are_limited() -> None:
    chain = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]
    with pytest.raises(SchemaError, match="nested more than 100 levels deep"):
        load("\n".join(chain))


@pytest.mark.parametrize(
    "text", ['"\\UFFFFFFFF"', "%YAML 9.9\n---\na", f"%YAML 1.{'9' * 5000}\n---\na"]
)
def test_any_failure_of_the_parser_is_an_error_of_the_file(text: str) -> None:
    with pytest.raises(SchemaError, match=r"^s.yaml: .*not valid YAML: "):
        load_schema(text.encode(), "s.yaml")


@pytest.mark.parametrize("digits", ["9" * 5000, "0x" + "f" * 5000])
def test_an_integer_of_very_many_digits_has_its_line(digits: str) -> None:
    with pytest.raises(
        SchemaError, match=r"line 2: an integer of 5,00\d digits, expected"
    ):
        load(f"features:\n  a: {{dtype: int64, min: {digits}}}\n")


def test_bytes_of_text() -> None:
    for data in (b"\xffeatures", b"features:\n  caf\xe9: int8\n"):
        with pytest.raises(
            SchemaError, match=r"^s.yaml: line [12]: byte 0x.. is not U"
        ):
            load_schema(data, "s.yaml")
    data = b"\xef\xbb\xbffeatures: {a: int8}\n"
    assert list(load_schema(data, "s.yaml").features) == ["a"]


YAML = b'{"features": {"a": "int64"}}'
PBTXT = b'# TFDV wrote this\n\nfeature {\n  name: "a"\n  type: INT\n}\n'
PBTXT_NAMES = ("s.pbtxt", "gs://b/s.PBTXT", "s.textproto", "s", "s.x")


@pytest.mark.parametrize(
    ("uri", "data"),
    [
        *((uri, PBTXT) for uri in PBTXT_NAMES),
        *((uri, YAML) for uri in ("s.yaml", "gs://b/s.YML", "s", "s.json")),
    ],
)
def test_the_form_by_ending_or_content(uri: str, data: bytes) -> None:
    assert load_schema(data, uri).features["a"].dtype == "int64"


def test_ending_is_believed() -> None:
    with pytest.raises(
        SchemaError, match=r"line 1, column 1: not a tensorflow-metadata"
    ):
        load_schema(YAML, "s.pbtxt")
    with pytest.raises(SchemaError, match=r"not valid YAML"):
        load_schema(PBTXT, "s.yaml")
