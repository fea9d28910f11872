"""Identifies the elements of a pipeline's collection, and what can be made of each."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job.job_spec import JobSpec, Payload
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.cast.cast_result import shown

ElementKind = Literal["dict", "batch", "message", "bytes"]

_NAMES: dict[str, Payload] = {
    "Example": "example",
    "SequenceExample": "sequence_example",
}
_PAYLOADS: dict[str, Payload] = {
    f"{package}.{name}": payload
    for package in ("tensorflow", Example.DESCRIPTOR.file.package)
    for name, payload in _NAMES.items()
}


@runtime_checkable
class Message(Protocol):
    """A protobuf message of any library."""

    DESCRIPTOR: Any

    def SerializeToString(self, *, deterministic: bool) -> bytes: ...  # noqa: N802


def element_kind(element: object, job: JobSpec) -> ElementKind:
    """Returns the kind of an element.

    Raises:
      UsageError: the job cannot make records of it.
    """
    if isinstance(element, Mapping | pa.RecordBatch | pa.Table):
        kind: ElementKind = "dict" if isinstance(element, Mapping) else "batch"
        if job.declared is None:
            raise UsageError(
                f"a {type(element).__name__} needs a schema to become a record. Use "
                "WriteDataset(output, schema) with a schema file or {name: dtype}"
            )
        return kind
    if isinstance(element, bytes | bytearray | memoryview):
        return "bytes"
    if isinstance(element, Message):
        _check_message(element, job.payload)
        return "message"
    raise UsageError(
        "WriteDataset: expected dicts, pyarrow.RecordBatch, tf.train.Example or bytes, "
        f"got {shown(element)} of type {type(element).__name__}"
    )


def _check_message(message: Message, payload: Payload) -> None:
    name = message.DESCRIPTOR.full_name
    if payload in ("raw", _PAYLOADS.get(name)):
        return
    known = _PAYLOADS.get(name)
    raise UsageError(
        f"a {name} is not a valid record of payload {payload!r}. Use "
        f"payload={known or 'raw'!r}"
    )


def parse_example(element: object, data: bytes) -> Example | None:
    """Parses an element as an example; returns None if its bytes are not one."""
    if isinstance(element, Message):
        # TensorFlow's class or ours: both have the same fields.
        return element  # type: ignore[return-value]
    try:
        return Example.FromString(data)
    except DecodeError:
        return None


def size_of(value: Any) -> int:
    """Estimates the bytes of a value."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, np.ndarray | memoryview):
        return value.nbytes
    if isinstance(value, list | tuple) and value:
        return len(value) * size_of(value[0])
    return 8


def row_as_json(row: Mapping[str, Any]) -> bytes:
    """Returns a rejected row as JSON; bytes become {"base64": ...}."""
    return json.dumps(_plain(row), sort_keys=True, ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.date | dt.time | dt.timedelta | Decimal):
        return str(value)
    return f"<{type(value).__name__}>"  # repr() can hold an address
