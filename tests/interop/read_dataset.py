"""Read recordmill's output with TensorFlow and TFDS, as its users would.

Run by the interop environment's python (requirements-interop.lock). It never
imports recordmill, so what it prints is independent evidence.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def print_json(value: Json) -> None:
    """Print one JSON object on a line of its own; NaN and infinity as Python's."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def iter_records(file: str) -> Iterator[bytes]:
    """Yield the data of each record; TensorFlow checks both CRCs."""
    import tensorflow as tf

    kind = "GZIP" if file.endswith(".gz") else ""
    for record in tf.data.TFRecordDataset(file, compression_type=kind):
        yield record.numpy()


def read_records(*files: str) -> None:
    """Print the number of records and the sha256 of their joined data, per file."""
    for file in files:
        digest = hashlib.sha256()
        num_records = num_bytes = 0
        for record in iter_records(file):
            digest.update(record)
            num_records += 1
            num_bytes += len(record)
        print_json(
            {
                "file": file,
                "records": num_records,
                "bytes": num_bytes,
                "sha256": digest.hexdigest(),
            }
        )


def feature_as_json(feature: Any) -> Json:
    """Give a tf.train.Feature as {kind, value}; bytes in base64, no kind as null."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return {"kind": None, "value": []}
    values = getattr(feature, kind).value
    if kind == "bytes_list":
        return {"kind": kind, "value": [base64.b64encode(v).decode() for v in values]}
    return {"kind": kind, "value": list(values)}


def read_examples(*files: str) -> None:
    """Print each example as {feature: {kind, value}}, sorted by feature name."""
    import tensorflow as tf

    for file in files:
        for record in iter_records(file):
            feature = tf.train.Example.FromString(record).features.feature
            print_json(
                {name: feature_as_json(feature[name]) for name in sorted(feature)}
            )


def readable(value: Any) -> Any:
    """Give a decoded TFDS value in JSON: text as is, large arrays as a digest."""
    import numpy as np

    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray) and value.size > 16:
        return {
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "sha256": hashlib.sha256(np.ascontiguousarray(value)).hexdigest(),
        }
    if isinstance(value, np.ndarray):
        return readable(value.tolist())
    if isinstance(value, np.generic):
        return readable(value.item())
    if isinstance(value, list):
        return [readable(item) for item in value]
    if hasattr(value, "to_list"):  # a ragged tensor
        return readable(value.to_list())
    return value


def flat_features(features: Any) -> Json:
    """List a TFDS feature tree as {name joined by /: [dtype, shape]}."""
    flat = {}

    def add(name: str, info: Any) -> None:
        if isinstance(info, dict):
            for key, child in info.items():
                add(f"{name}/{key}" if name else key, child)
        else:
            flat[name] = [info.tf_dtype.name, list(info.shape)]

    add("", features.get_tensor_info())
    return flat


def read_tfds(directory: str) -> None:
    """Read every split of a TFDS directory wholly; print counts and first examples."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(directory)
    found = {}
    for split, info in builder.info.splits.items():
        num_read = 0
        first = None
        dataset = builder.as_dataset(split=split, shuffle_files=False)
        for example in tfds.as_numpy(dataset):
            if first is None:
                first = readable(example)
            num_read += 1
        found[split] = {
            "num_examples": info.num_examples,
            "read": num_read,
            "features": flat_features(builder.info.features),
            "first": first,
        }
    print_json(found)


def read_supervised(directory: str) -> None:
    """Print each pair that as_supervised gives of split train, and the label's names."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(directory)
    dataset = builder.as_dataset(split="train", as_supervised=True)
    pairs = [[readable(part) for part in pair] for pair in tfds.as_numpy(dataset)]
    label = builder.info.supervised_keys[1]
    print_json({"pairs": pairs, "names": builder.info.features[label].names})


def decode_image(*files: str) -> None:
    """Print each image's size in pixels and channels as tf.io.decode_image has it."""
    import tensorflow as tf

    for file in files:
        try:
            image = tf.io.decode_image(
                tf.io.read_file(file), channels=0, expand_animations=True
            )
        except tf.errors.OpError as error:
            print_json({"file": file, "error": str(error.message)})
            continue
        # An animated GIF has its frames first: frames, height, width, depth.
        height, width, depth = image.shape[-3:]
        print_json({"file": file, "height": height, "width": width, "depth": depth})


COMMANDS = {
    "records": read_records,
    "examples": read_examples,
    "tfds": read_tfds,
    "supervised": read_supervised,
    "decode-image": decode_image,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
