"""Writes TensorFlow code that parses a dataset's records, ready to paste."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recordmill.schemas.features.feature import Content, FeatureSpec, Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.transforms.decode.code_text import (
    Call,
    format_assignment,
    format_lines,
    quoted,
)
from recordmill.transforms.decode.tf_code import (
    decode_image,
    parse_tensor,
    raw_values,
    reshape,
)
from recordmill.transforms.decode.tf_feature_code import (
    FeatureCode,
    feature_code,
    feature_list_code,
    value_of,
)
from recordmill.transforms.encode.payloads import check_payload, raw_feature


def parsing_spec(schema: Schema, payload: Payload) -> str:
    """Returns Python code with a function that parses one record.

    Args:
      schema: of the records.
      payload: what the records hold.

    Raises:
      SchemaError: records of this payload cannot hold the schema's features.
    """
    check_payload(schema, payload)
    if payload == "raw":
        return _raw_code(raw_feature(schema))
    context = [feature_code(f) for f in schema.features if not f.sequence]
    lines = ["import tensorflow as tf", ""]
    if payload == "sequence_example":
        lists = [feature_list_code(f) for f in schema.features if f.sequence]
        lines += _dict_lines("CONTEXT_FEATURES", context)
        lines += ["", *_dict_lines("SEQUENCE_FEATURES", lists), "", ""]
        lines += [
            "def parse_sequence_example(record):",
            '    """The features of one record; for tf.data.Dataset.map."""',
            "    context, sequences = tf.io.parse_single_sequence_example(",
            "        record, CONTEXT_FEATURES, SEQUENCE_FEATURES",
            "    )",
            "    example = {**context, **sequences}",
        ]
        parts = [*context, *lists]
    else:
        lines += [
            *_dict_lines("FEATURES", context),
            "",
            "",
            "def parse_example(record):",
            '    """The features of one record; for tf.data.Dataset.map."""',
        ]
        if payload == "json":
            lines.append("    record = tf.io.decode_json_example(record)")
        lines.append("    example = tf.io.parse_single_example(record, FEATURES)")
        parts = context
    for part in parts:
        lines += _step_lines(part)
    lines.append("    return example")
    return "\n".join(lines) + "\n"


def has_one_size(feature: FeatureSpec) -> bool:
    """Tells whether the parser returns a feature of the same shape for each record."""
    is_encoded = feature.content is Content.PICTURE  # one string, of any picture
    if feature.sequence or (None in feature.shape and not is_encoded):
        return False
    spec = feature_code(feature).spec
    return isinstance(spec, Call) and spec.head.startswith("tf.io.FixedLenFeature")


def _dict_lines(name: str, parts: Sequence[FeatureCode]) -> list[str]:
    if not parts:
        return [f"{name} = {{}}"]
    lines = [f"{name} = {{"]
    for part in parts:
        if part.missing:
            lines.append(f"    # missing: {part.missing}")
        lines += format_lines(part.spec, 4, before=f"{quoted(part.name)}: ", after=",")
    return [*lines, "}"]


def _step_lines(part: FeatureCode) -> Iterator[str]:
    for step in part.steps:
        if isinstance(step, Call):
            yield from format_assignment(value_of(part.name), step, 4)
        else:
            yield f"    # {step}"


def _raw_code(feature: FeatureSpec) -> str:
    """Returns the comments for raw records, which need no parser."""
    text = f"# A record is the bytes of {quoted(feature.name)}: nothing to parse.\n"
    if feature.content is Content.PICTURE:
        text += f"# Its pixels: {decode_image('record', feature)}\n"
    elif feature.content is Content.ARRAY:
        values = reshape(raw_values("record", feature), feature.shape)
        text += f"# Its values: {values}\n"
    elif feature.content is Content.TENSOR:
        text += f"# Its values: {parse_tensor('record', feature)}\n"
    return text
