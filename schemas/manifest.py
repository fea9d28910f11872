"""The manifest: a dataset's table of contents, written last; and TFDS's two files."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import OutputError

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION: Final = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardEntry(_Frozen):
    """One shard: its file, its records, the file's bytes and CRC-32C (8 hex digits)."""

    file: str
    records: int
    bytes: int
    crc32c: str


class SplitEntry(_Frozen):
    """One split: totals and shards in order."""

    records: int
    bytes: int
    shards: tuple[ShardEntry, ...]


class FeatureEntry(_Frozen):
    """One feature; see schemas.features.FeatureSpec."""

    name: str
    kind: Literal["bytes_list", "float_list", "int64_list"]
    dtype: str
    shape: tuple[int | None, ...]
    content: Literal["values", "picture", "array"]
    optional: bool
    num_classes: int | None = None


class Manifest(_Frozen):
    """What a dataset holds. The same run always gives the same bytes."""

    manifest_version: Literal[1] = MANIFEST_VERSION
    name: str
    version: str
    fingerprint: str
    seed: int
    shuffle: bool
    compression: Literal["none", "gzip"]
    features: tuple[FeatureEntry, ...]
    rows_read: int
    rows_rejected: int
    splits: dict[str, SplitEntry]

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits.values())

    @property
    def num_shards(self) -> int:
        return sum(len(split.shards) for split in self.splits.values())

    @property
    def num_bytes(self) -> int:
        return sum(split.bytes for split in self.splits.values())

    def to_bytes(self) -> bytes:
        """The file's bytes: UTF-8 JSON, keys in the order of the fields."""
        return json_bytes(self.model_dump(mode="json", exclude_none=False))

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Manifest:
        """Reads a manifest.

        Raises:
          OutputError: if it is not one, naming the file and what is wrong.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise OutputError(
                f"{uri}: not a recordmill manifest: {where}: {first['msg']}"
            ) from error


def json_bytes(value: Any) -> bytes:
    """Indented UTF-8 JSON with a newline at its end; never NaN."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"
