"""Brings the rows of any reader into one form, and digests them in whatever order.

Needs NumPy, and Pillow where a reader leaves images encoded. It never imports
recordmill, and runs in each environment with a reader. A dataset is described by JSON:

    name, output       of the dataset, and its folder
    exported           the folder of `recordmill export tfds`
    files              of each split, in the manifest's order
    compression        none or gzip
    container          tfrecord or array_record
    code               the file with the program of `recordmill inspect --tf`
    features           name, kind, dtype, shape, content, optional, label, keys of each
"""

import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
Row = Mapping[str, Any]
MISSING = "missing"


def cases() -> list[Json]:
    """Give the datasets that the first argument's file describes."""
    found: list[Json] = json.loads(Path(sys.argv[1]).read_text())
    return found


def cases_of_tfrecord() -> list[Json]:
    """Give the datasets whose shards are TFRecord files."""
    return [case for case in cases() if case["container"] == "tfrecord"]


def told(case: Json, reader: str, read: Callable[[], Iterable[Row]]) -> None:
    """Print what a reader finds in a dataset, or how it fails."""
    answer = {"dataset": case["name"], "reader": reader}
    try:
        answer |= digested(read(), case["features"])
    except Exception as error:
        answer |= {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)


def digested(rows: Iterable[Row], features: list[Json]) -> Json:
    """Count rows, and digest them so that their order does not matter."""
    each = sorted(row_digest(row, features) for row in rows)
    return {
        "rows": len(each),
        "digest": hashlib.sha256("".join(each).encode()).hexdigest(),
    }


def row_digest(row: Row, features: list[Json]) -> str:
    """Digest one row."""
    assert set(row) == {feature["name"] for feature in features}, set(row)
    plain = [normal(row[feature["name"]], feature) for feature in features]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def normal(value: Any, feature: Json) -> Any:
    """Give a value as nested lists of text, or as shape and digest of an array.

    Readers tell a missing value by None, by NaN or -1, or by one more dimension.
    """
    if value is None:
        return MISSING
    if feature["content"] == "picture" and isinstance(value, bytes):
        value = pixels(value)
    if feature["dtype"] in ("string", "bytes") and feature["content"] == "values":
        return _or_missing(_texts(value), feature)
    if feature["shape"].count(None) > 1 and feature["content"] == "values":
        return _numbers(value, np.dtype(feature["dtype"]).kind)
    array = np.asarray(value)
    if feature["optional"]:
        if array.ndim > len(feature["shape"]):
            if not len(array):
                return MISSING
            (array,) = array
        marker = array.dtype.kind == "f" and np.isnan(array).all()
        if marker or (feature["label"] and (array == -1).all()):
            return MISSING
    if not array.size:  # where lists stand for arrays, other sides are lost
        array = array.reshape([side or 0 for side in feature["shape"]])
    array = np.ascontiguousarray(array.astype(feature["dtype"]))
    return [list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


def _or_missing(texts: Any, feature: Json) -> Any:
    if feature["optional"] and not feature["shape"] and isinstance(texts, list):
        return texts[0] if texts else MISSING
    return texts


def _texts(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_texts(item) for item in value]
    return value if isinstance(value, str) else value.decode()


def _numbers(value: Any, kind: str) -> Any:
    if hasattr(value, "to_list"):  # a ragged tensor
        value = value.to_list()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_numbers(item, kind) for item in value]
    return float(value) if kind == "f" else int(value)


def pixels(data: bytes) -> np.ndarray:
    """Decode an image without loss."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def from_stored(
    stored: Mapping[str, Any],
    features: list[Json],
    parse_tensor: Callable[[bytes, str], np.ndarray],
) -> dict[str, Any]:
    """Build a row of what stands in a tf.train.Example: key to list of values."""
    return {f["name"]: _value(stored, f, parse_tensor) for f in features}


def _value(
    stored: Mapping[str, Any],
    feature: Json,
    parse_tensor: Callable[[bytes, str], np.ndarray],
) -> Any:
    values, *lengths = (stored.get(key) for key in feature["keys"])
    if lengths:
        for row_lengths in reversed(lengths):
            values = list(_nested(list(values), list(row_lengths)))
        return values
    if values is None:
        return None
    shape = [-1 if side is None else side for side in feature["shape"]]
    if feature["content"] == "array":
        dtype = np.dtype(feature["dtype"]).newbyteorder("<")
        return np.frombuffer(values[0], dtype).reshape(shape)
    if feature["content"] == "tensor":
        return parse_tensor(values[0], feature["dtype"])
    if feature["content"] == "picture":
        return values[0]
    if feature["dtype"] in ("string", "bytes"):
        return list(values) if shape else values[0]
    return np.array(values, feature["dtype"]).reshape(shape)


def _nested(values: list[Any], lengths: list[int]) -> Iterator[list[Any]]:
    start = 0
    for length in lengths:
        yield values[start : start + int(length)]
        start += int(length)


def unbatched(batches: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the rows of batches that have a column for each feature."""
    for batch in batches:
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def of_splits(case: Json, read: Callable[[str], Iterable[Row]]) -> Iterator[Row]:
    """Yield the rows of each split."""
    for split in case["files"]:
        yield from read(split)
