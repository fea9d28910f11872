"""The protobuf messages that are compiled from schemas/proto."""

from __future__ import annotations

import pickle

import pytest

from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.proto.tensor_pb2 import TensorProto


@pytest.mark.parametrize("message", [Example, TensorProto])
def test_messages_travel_to_workers(message: type) -> None:
    """By the name of their module, which has to be the one that is installed."""
    assert message.__module__.startswith("recordmill.schemas.proto.")
    assert pickle.loads(pickle.dumps(message)) is message
