"""Infers the features of examples from a sample, or checks those that are known by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.features.feature import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.schemas.text import count
from recordmill.transforms.decode.decode_batch import decode_records
from recordmill.transforms.decode.observed_features import ObservedFeatures
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.pictures.signature import picture_format

_SHOWN_BYTES = 12
_LOOKED_AT = 32  # records of which it is asked whether they are sequence examples
_PICTURES = ("jpeg", "png")  # of which TFDS decodes any to pixels


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record of the sample.

    Attributes:
      uri: of its file.
      offset: of its frame in the (unpacked) file.
      data: without the frame.
    """

    uri: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InferredFeatures:
    """What a sample tells of the features.

    Attributes:
      schema: of the records.
      described: how many features are as files beside the records say.
      other: names of features that such files describe otherwise than they are.
    """

    schema: Schema
    described: int = 0
    other: tuple[str, ...] = ()


def infer_features(
    sample: Sequence[SampledRecord],
    stated: Mapping[str, FeatureSpec],
    *,
    skip_invalid: bool,
) -> InferredFeatures:
    """Infers the features of examples.

    Args:
      sample: some records.
      stated: features that files beside the records describe; those that the sample
        fits are taken from there.
      skip_invalid: whether records that are no examples do not count; otherwise one is
        an error.

    Raises:
      InputError: a record is not an example, or none is.
      SchemaError: a feature has values of several kinds.
    """
    observed, valid = ObservedFeatures(), list[bytes]()
    problem: InputError | None = None
    for number, record in enumerate(sample):
        example = _example_of(record.data)
        if number < _LOOKED_AT and _has_lists(record.data):
            example = "is a tf.train.SequenceExample"
        if isinstance(example, str):
            problem = problem or _not_an_example(record, example)
            continue
        observed.add_example(example)
        valid.append(record.data)
    if problem is not None and not (skip_invalid and valid):
        raise problem
    try:
        inferred = observed.to_schema(len(valid))
    except SchemaError as error:
        raise SchemaError(
            f"{sample[0].uri}: {error}. Records can be kept as they are, whatever they "
            "hold, by `payload=raw`"
        ) from error
    records = pa.array(valid, pa.binary())
    features, described, other = [], 0, []
    for feature in inferred.features:
        known = stated.get(feature.name)
        if known is not None:
            known = replace(known, optional=feature.optional)
            if known.kind is feature.kind and _fits(records, known):
                features.append(known)
                described += 1
                continue
            other.append(feature.name)
        features.append(_as_picture(feature, records))
    return InferredFeatures(Schema(tuple(features)), described, tuple(other))


def check_features(
    sample: Sequence[SampledRecord], schema: Schema, payload: Payload, whose: str
) -> None:
    """Checks that the records of a sample fit a schema.

    Args:
      sample: some records.
      schema: of the records.
      payload: what they hold.
      whose: who says so, for the message.

    Raises:
      InputError: names the first record that does not.
    """
    records = pa.array([record.data for record in sample], pa.binary())
    decoded = decode_payload(records, schema, payload)
    problems = list(decoded.row_errors)
    for feature in schema.features if payload != "raw" else ():
        column = decoded.batch[feature.name]
        if not feature.optional and column.null_count:
            row = column.is_null().index(True).as_py()
            problems.append((row, f"feature {feature.name!r}: missing"))
    if not problems:
        return
    row, reason = min(problems)
    record = sample[row]
    raise InputError(
        f"{record.uri}: the record at byte {record.offset:,} is not as {whose} says: "
        f"{reason}. Correct the `schema`, or use `records=decode`, where such records are "
        "rejects, or `payload=raw`, where nothing is said of what records hold"
    )


def _example_of(data: bytes) -> Example | str:
    """Returns an example, or why there is none."""
    try:
        example = Example.FromString(data)
    except DecodeError:
        return "is not a tf.train.Example"
    if example.features.feature:
        return example
    return "has no feature" if data else "is empty"


def _has_lists(data: bytes) -> bool:
    """Tells whether there are feature lists; an example has that field unknown."""
    try:
        return bool(SequenceExample.FromString(data).feature_lists.feature_list)
    except DecodeError:
        return False


def _not_an_example(record: SampledRecord, why: str) -> InputError:
    return InputError(
        f"{record.uri}: the record at byte {record.offset:,} {why} "
        f"({count(len(record.data), 'byte')} that start with "
        f"{record.data[:_SHOWN_BYTES].hex()!r}). Sequence examples and JSON are kept by "
        "`payload=sequence_example` or `payload=json` with their features in a `schema`; "
        "any records by `payload=raw`"
    )


def _fits(records: pa.BinaryArray, feature: FeatureSpec) -> bool:
    try:
        return not decode_records(records, Schema((feature,))).row_errors
    except SchemaError:
        return False


def _as_picture(feature: FeatureSpec, records: pa.BinaryArray) -> FeatureSpec:
    """Returns a feature as one of pictures, if all of its values are JPEG or PNG."""
    if feature.kind is not Kind.BYTES or feature.shape:
        return feature
    values = decode_records(records, Schema((feature,))).batch[0].drop_null()
    heads = [value.as_py() for value in values]
    if not heads or not all(picture_format(head) in _PICTURES for head in heads):
        return feature
    return replace(
        feature, dtype="uint8", shape=(None, None, None), content=Content.PICTURE
    )
