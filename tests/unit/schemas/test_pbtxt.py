"""schema.pbtxt: what is written, and what is read of others' files."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import pytest
from declared_zoo import declared_schemas
from example_counts import examples
from google.protobuf import text_format
from hypothesis import example, given
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.schemas.declared import (
    DeclaredFeature,
    DeclaredSchema,
    ImageRule,
    declare_schema,
)
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.schema_file import load_schema
from recordmill.schemas.tfmd import dump_pbtxt, load_pbtxt, to_proto


def declared(text: str) -> DeclaredSchema:
    return load_schema(f"features:\n{textwrap.indent(text, '  ')}".encode(), "s.yaml")


def proto_of(text: str) -> schema_pb2.Schema:
    """What TFMD's tools see in the file."""
    return text_format.Parse(dump_pbtxt(declared(text)), schema_pb2.Schema())


def feature_of(fields: str) -> schema_pb2.Feature:
    (feature,) = proto_of(f"x: {fields}").feature
    return feature


def parsed(text: str) -> schema_pb2.Feature:
    return text_format.Parse(text, schema_pb2.Feature())


def plain_text(schema: DeclaredSchema) -> str:
    return text_format.MessageToString(to_proto(schema), as_utf8=True)


RAGGED = DeclaredFeature(dtype="bool", shape=[None, None])


@given(declared_schemas())
@example(DeclaredSchema(features={str(number): RAGGED for number in range(9)}))
def test_text_is_that_of_text_format(schema: DeclaredSchema) -> None:
    """To the byte, whichever way it is made: datasets of the same job are the same."""
    assert dump_pbtxt(schema).decode() == plain_text(schema)


@given(declared_schemas())
def test_features_that_differ_in_name_alone(declared: DeclaredSchema) -> None:
    features = declared.to_schema().features
    others = [replace(each, name=f"{each.name}~", column="") for each in features]
    schema = Schema((*features, *others))
    assert dump_pbtxt(schema).decode() == plain_text(declare_schema(schema))


@pytest.mark.parametrize(
    "name",
    ["a", "é", 'quo"te', "back\\slash", "line\nfloat_domain {", "\u2028", "\x7f"],
)
def test_text_of_any_name(name: str) -> None:
    schema = DeclaredSchema(features={name: DeclaredFeature(dtype="int64")})
    assert dump_pbtxt(schema).decode() == plain_text(schema)


REQUIRED = "presence { min_fraction: 1 min_count: 1 }"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # Type, presence and shape. A comment only for what they do not say.
        ("int64", f"type: INT {REQUIRED} shape {{}}"),
        ("float32", f"type: FLOAT {REQUIRED} shape {{}}"),
        ("bytes", f"type: BYTES {REQUIRED} shape {{}}"),
        ("string", f"type: BYTES {REQUIRED} shape {{}} annotation {{ comment: 'recordmill: {{dtype: string}}' }}"),
        ("float64", f"type: FLOAT {REQUIRED} shape {{}} annotation {{ comment: 'recordmill: {{dtype: float64}}' }}"),
        ("int64?", "type: INT value_count { min: 1 max: 1 }"),
        ("{dtype: int64, default: 3}", f"type: INT {REQUIRED} shape {{}} annotation {{ comment: 'recordmill: {{default: 3}}' }}"),
        ("int64[2,3]", f"type: INT {REQUIRED} shape {{ dim {{ size: 2 }} dim {{ size: 3 }} }}"),
        ("int64[6]?", "type: INT value_count { min: 6 max: 6 }"),
        ("int64[2,3]?", "type: INT value_count { min: 6 max: 6 } annotation { comment: 'recordmill: {shape: [2, 3]}' }"),
        ("int64[]", f"type: INT {REQUIRED} value_count {{}}"),
        ("int64[?,3]", f"type: INT {REQUIRED} value_count {{}} annotation {{ comment: 'recordmill: {{shape: [null, 3]}}' }}"),
        # Domains.
        ("bool", f"type: INT {REQUIRED} shape {{}} bool_domain {{}}"),
        ("{dtype: int64, min: 0, max: 9}", f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 0 max: 9 }}"),
        ("{dtype: float32, max: 0.1}", f"type: FLOAT {REQUIRED} shape {{}} float_domain {{ max: 0.1 }}"),
        ("{dtype: int64, max: 9.5}", f"type: INT {REQUIRED} shape {{}} annotation {{ comment: 'recordmill: {{max: 9.5}}' }}"),
        ("{dtype: uint64, min: 1, max: 18446744073709551615}", f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 1 }} annotation {{ comment: 'recordmill: {{dtype: uint64, max: 18446744073709551615}}' }}"),
        ("{dtype: int64, unit: ms}", f"type: INT {REQUIRED} shape {{}} time_domain {{ integer_format: UNIX_MILLISECONDS }}"),
        ("{picture: {}}", f"type: BYTES {REQUIRED} shape {{}} image_domain {{}}"),
        ("{picture: {height: 8}, column: p}", f"type: BYTES {REQUIRED} shape {{}} image_domain {{}} annotation {{ comment: 'recordmill: {{column: p, picture: {{height: 8}}}}' }}"),
        # Stored otherwise: the type is that of the list.
        ("{dtype: int8, stored: float_list}", f"type: FLOAT {REQUIRED} shape {{}} annotation {{ comment: 'recordmill: {{dtype: int8, stored: float_list}}' }}"),
        ("{dtype: int8, shape: [2, null], stored: tensor}", f"type: BYTES {REQUIRED} shape {{}} annotation {{ comment: 'recordmill: {{dtype: int8, shape: [2, null], stored: tensor}}' }}"),
        ("{dtype: float32, shape: [2], stored: bytes_list, optional: true}", "type: BYTES value_count { min: 1 max: 1 } annotation { comment: 'recordmill: {dtype: float32, shape: [2], stored: bytes_list}' }"),
    ],
)  # fmt: skip
def test_fields_and_comment(fields: str, expected: str) -> None:
    assert feature_of(fields) == parsed(f"name: 'x' {expected}")


def test_class_names_are_a_string_domain() -> None:
    proto = proto_of("x: {classes: [cat, dog]}\ny: {dtype: int8, classes: ['no']}")
    assert proto.feature[0] == parsed(
        f"name: 'x' type: INT {REQUIRED} shape {{}} "
        "int_domain { name: 'x' min: 0 max: 1 is_categorical: true }"
    )
    assert [(d.name, list(d.value)) for d in proto.string_domain] == [
        ("x", ["cat", "dog"]),
        ("y", ["no"]),
    ]


def test_ragged_features_are_put_together() -> None:
    """As tfx_bsl's TensorAdapter reads them: checked with tfx_bsl 1.21."""
    proto = proto_of("boxes: float32[?,?,4]\nage: int64\nnote: bytes?")
    assert [feature.name for feature in proto.feature] == [
        *("boxes/ragged_flat_values", "boxes/ragged_row_lengths_0", "age", "note")
    ]
    group = proto.tensor_representation_group[""].tensor_representation
    message = text_format.Parse(
        """
        tensor_representation { key: "boxes" value { ragged_tensor {
          feature_path { step: "boxes/ragged_flat_values" }
          partition { row_length: "boxes/ragged_row_lengths_0" }
          partition { uniform_row_length: 4 } } } }
        tensor_representation { key: "age"
          value { dense_tensor { column_name: "age" shape {} } } }
        tensor_representation { key: "note"
          value { varlen_sparse_tensor { column_name: "note" } } }
        """,
        schema_pb2.TensorRepresentationGroup(),
    )
    assert dict(group) == dict(message.tensor_representation)
    assert not proto_of("a: int64[]\nb: int64[2]").tensor_representation_group


def test_feature_lists_are_in_the_struct_of_sequences() -> None:
    proto = proto_of(
        "a: int64\nb: {dtype: float32, shape: [2], sequence: true}\n"
        "c: {dtype: int64, sequence: true}\nd: {dtype: int64, shape: [null], sequence: true}"
    )
    assert [feature.name for feature in proto.feature] == ["a", "##SEQUENCE##"]
    steps = text_format.Parse(
        f"""
        feature {{ name: "b" type: FLOAT {REQUIRED}
          value_counts {{ value_count {{}} value_count {{ min: 2 max: 2 }} }} }}
        feature {{ name: "c" type: INT {REQUIRED}
          value_counts {{ value_count {{}} value_count {{ min: 1 max: 1 }} }} }}
        feature {{ name: "d" type: INT {REQUIRED}
          value_counts {{ value_count {{}} value_count {{}} }} }}
        """,
        schema_pb2.StructDomain(),
    )
    assert proto.feature[1].type == schema_pb2.STRUCT
    assert proto.feature[1].struct_domain == steps


@examples(400)
@given(declared_schemas())
def test_load_gives_back_what_dump_wrote(schema: DeclaredSchema) -> None:
    data = dump_pbtxt(schema)
    assert load_schema(data, "s.pbtxt") == schema
    assert load_schema(data, "no extension") == schema
    assert dump_pbtxt(schema) == data
    records = schema.to_schema()
    assert load_pbtxt(dump_pbtxt(records), "s.pbtxt").to_schema() == records


OF_OTHERS = """
feature {
  name: "company"
  value_count { min: 1 max: 1 }
  type: BYTES
  domain: "company"
  presence { min_count: 1 }
  distribution_constraints { min_domain_mass: 0.9 }
}
feature { name: "tract" type: BYTES presence { min_count: 0 } }
feature {
  name: "fare"
  type: FLOAT
  presence { min_fraction: 1.0 min_count: 1 }
  shape { dim { size: 1 } }
  float_domain { min: 0.1 max: inf }
  skew_comparator { infinity_norm { threshold: 0.01 } }
}
feature { name: "hour" type: INT presence { min_fraction: 1.0 }
  value_count { min: 1 max: 1 } domain: "hours" }
feature { name: "paid" type: INT bool_domain {} value_count { min: 1 max: 1 } }
feature { name: "words" type: BYTES natural_language_domain {} value_count { min: 0 max: 9 } }
feature { name: "embedding" type: FLOAT value_count { min: 8 max: 8 } }
feature { name: "nested" type: FLOAT value_counts { value_count {} value_count { min: 2 max: 2 } } }
feature { name: "photo" type: BYTES image_domain { max_image_byte_size: 9 } shape {} }
feature { name: "day" type: INT time_domain { integer_format: UNIX_DAYS } shape {} }
feature { name: "date" type: BYTES time_domain { string_format: "%Y" } shape {} }
feature { name: "category" type: INT shape {} int_domain { min: 1 max: 3 is_categorical: true } }
feature { name: "old" type: INT deprecated: true }
feature { name: "older" type: INT lifecycle_stage: DEPRECATED }
feature { name: "live" type: INT lifecycle_stage: PRODUCTION shape {}
  annotation { tag: "user_feature" comment: "what it is" } }
feature { name: "index" type: INT }
feature { name: "foo$ragged_values" type: INT }
sparse_feature { name: "sparse" index_feature { name: "index" } value_feature { name: "fare" } }
weighted_feature { name: "w" feature { step: "hour" } weight_feature { step: "fare" } }
string_domain { name: "company" value: "Taxi One" value: "Taxi Two" }
int_domain { name: "hours" min: 0 max: 23 }
default_environment: "TRAINING"
tensor_representation_group { key: "" value { tensor_representation {
  key: "foo" value { ragged_tensor { feature_path { step: "foo$ragged_values" } } } } } }
"""


def test_schema_of_others() -> None:
    """In the ways of tfdv.infer_schema, tft and people."""
    optional: dict[str, Any] = {"optional": True}
    many: dict[str, Any] = {"optional": True, "shape": (None,)}
    assert load_pbtxt(OF_OTHERS.encode(), "s.pbtxt").features == {
        "company": DeclaredFeature(dtype="string", **optional),
        "tract": DeclaredFeature(**many),
        "fare": DeclaredFeature(dtype="float32", shape=(1,), min=0.1),
        "hour": DeclaredFeature(dtype="int64", min=0, max=23),
        "paid": DeclaredFeature(dtype="bool", **optional),
        "words": DeclaredFeature(dtype="string", **many),
        "embedding": DeclaredFeature(dtype="float32", shape=(8,), optional=True),
        "nested": DeclaredFeature(dtype="float32", shape=(None, 2), optional=True),
        "photo": DeclaredFeature(picture=ImageRule(), **optional),
        "day": DeclaredFeature(dtype="int64", unit="d", **optional),
        "date": DeclaredFeature(dtype="string", **optional),
        "category": DeclaredFeature(dtype="int64", min=1, max=3, **optional),
        "live": DeclaredFeature(dtype="int64", **optional),
        "index": DeclaredFeature(dtype="int64", **many),
        "foo$ragged_values": DeclaredFeature(dtype="int64", **many),
    }


WRONG = [
    ('feature {\n  name: "a"\n  type: INTEGER\n}', "line 3, column 9: not a tensorflow-metadata schema in text form: '  type: INTEGER': Enum type \"tensorflow.metadata.v0.FeatureType\" has no value named INTEGER."),
    ('feature {\n  nme: "a"\n}', 'line 2, column 3: not a tensorflow-metadata schema in text form: Message type "tensorflow.metadata.v0.Feature" has no field named "nme".'),
    ("feature {", "line 1, column 9: not a tensorflow-metadata schema in text form: Expected \"}\"."),
    ("feature { name: '\xff' }", "is not UTF-8: "),
    ("", "features: expected at least one feature, found none"),
    ('feature { name: "a" }', "feature 'a': has no type; expected INT, FLOAT or BYTES"),
    ('feature { type: INT }', "feature '': a feature needs a name, found an empty one"),
    ('feature { name: "a" type: INT domain: "b" }', "feature 'a': the schema has no domain 'b'"),
    ('feature { name: "a" type: INT } feature { name: "a" type: BYTES }', "feature 'a' is defined twice"),
    ('feature { name: "a" type: STRUCT struct_domain {} }', "feature 'a': STRUCT contains features, which a tf.train.Example cannot nest: declare each of them with a name like outer/inner"),
    ('feature { name: "a" type: BYTES struct_domain {} }', "feature 'a': BYTES cannot have a struct_domain"),
    ("feature { name: 'a' type: INT annotation { comment: 'recordmill: {dtype: int9}' } }", "feature 'a': dtype: expected 'bool'"),
    ("feature { name: 'a' type: INT annotation { comment: 'recordmill: {dtype' } }", "comment of feature 'a': line 1, column 7: not valid YAML: while parsing"),
    ("feature { name: 'a' type: INT annotation { comment: 'recordmill: yes' } }", "comment of feature 'a': expected {field: value}, found 'yes'"),
    ("feature { name: 'a' type: FLOAT annotation { comment: 'recordmill: {unit: ms}' } }", "feature 'a': unit needs dtype int64, got float32"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load_pbtxt(text.encode("latin-1"), "gs://b/s.pbtxt")
    assert str(caught.value).startswith(f"gs://b/s.pbtxt: {message}")
