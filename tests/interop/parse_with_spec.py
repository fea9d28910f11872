"""Parse records with the code that recordmill prints for them, as its users would.

    python tests/interop/parse_with_spec.py < CASES

Run by the interop environment's python (requirements-interop.lock). It never imports
recordmill. Cases come as a JSON array on stdin: {"code": text, "records": [hex]}. For
every record of every case there is a line: {feature: {dtype, shape, value}}, bytes in
hex, the shape's unknown sizes null.
"""

import json
import os
import sys
from typing import Any

# Set before the import: TensorFlow reads it while loading.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf


def plain(value: Any) -> Any:
    """Give a nested list with bytes in hex."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def described(value: Any) -> dict[str, Any]:
    """Give what a tensor is and holds."""
    if isinstance(value, tf.RaggedTensor):
        values = value.to_list()
    else:
        values = value.numpy()
        values = values if isinstance(values, bytes) else values.tolist()
    return {
        "dtype": value.dtype.name,
        "shape": value.shape.as_list(),
        "value": plain(values),
    }


def main() -> int:
    """Parse every record twice: eagerly, and in the graph of Dataset.map."""
    for case in json.load(sys.stdin):
        names: dict[str, Any] = {}
        exec(case["code"], names)
        (parse,) = (names[name] for name in names if name.startswith("parse_"))
        records = [bytes.fromhex(record) for record in case["records"]]
        mapped = tf.data.Dataset.from_tensor_slices(records).map(parse)
        for record, found in zip(records, mapped, strict=True):
            facts = {name: described(value) for name, value in found.items()}
            eager = {name: described(value) for name, value in parse(record).items()}
            assert json.dumps(facts) == json.dumps(eager), (facts, eager)
            print(json.dumps(facts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
