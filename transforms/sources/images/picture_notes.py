r"""Keeps what is noted of each picture beside its file: label, features, or what is wrong.

Notes are columns beside the inventory. A reference carries those of its picture as JSON,
so that the writer of a shard needs nothing else:

    1234:1700000000000000000 1.jpg\0[2, 0.5, [[1.0, 2.0]]]   label 2 and two features
    1234:1700000000000000000 2.jpg\0"labels.csv ..."         why it is a reject
    !"3.jpg": there is no such picture\0labels.csv\0{"at": 17, "raw": "3.jpg,cat"}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.transforms.sources.plain_types import plain_schema

# Of the columns beside the inventory; features have names that begin with FEATURE.
SPLIT, LABEL, PROBLEM, AT, RAW = "split", "label", "rejected", "at", "raw"
FEATURE = "feature "


class Note(NamedTuple):
    """What a reference says beside its file.

    Attributes:
      values: of the label, if there is one, and of the features.
      problem: why the picture is a reject, or "".
      at: where the row of a table begins that is a reject.
      raw: its bytes.
    """

    values: Sequence[Any] = ()
    problem: str = ""
    at: int = 0
    raw: bytes = b""


NO_NOTE = Note()


@dataclass(frozen=True)
class NoteTypes:
    """What is noted of all pictures.

    Attributes:
      has_labels: whether they have labels.
      has_several: whether one may have several.
      features: names and types of the features.
      optional: the names of those that some pictures lack.
    """

    has_labels: bool = True
    has_several: bool = False
    features: tuple[tuple[str, pa.DataType], ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def label_type(self) -> pa.DataType:
        return pa.list_(pa.int64()) if self.has_several else pa.int64()

    def specs(self) -> list[FeatureSpec]:
        """Returns the features that pictures do not have by themselves."""
        if not self.features:
            return []
        nulls = [int(name in self.optional) for name, _ in self.features]
        return list(plain_schema(pa.schema(list(self.features)), nulls).features)

    def columns(
        self, values: Sequence[Sequence[Any]], classes: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Returns the columns of pictures with these values.

        Args:
          values: of each picture.
          classes: the names that labels count.
        """
        wanted = [("label", self.label_type)] if self.has_labels else []
        wanted += self.features
        found = {
            name: pa.array([each[at] for each in values], kind)
            for at, (name, kind) in enumerate(wanted)
        }
        if self.has_labels:
            names = pa.array(classes, pa.string())
            found.setdefault("text", _named(found["label"], names))
        return found

    def listed(self, notes: pa.Table, classes: Sequence[str]) -> dict[str, pa.Array]:
        """Returns the same of what is noted, without "text"; labels are names there."""
        found = {}
        if self.has_labels:
            found["label"] = _numbered(_array(notes[LABEL]), classes)
        for name, _ in self.features:
            found[name] = _array(notes[FEATURE + name])
        return found


def write_notes(notes: pa.Table, columns: dict[str, pa.Array]) -> list[bytes]:
    """Returns the note of each reference, as it stands at its end.

    Args:
      notes: what is noted.
      columns: what `NoteTypes.listed` says of it.
    """
    problems = notes[PROBLEM].to_pylist()
    rows = zip(*(each.to_pylist() for each in columns.values()), strict=True)
    written = []
    # A loop, 3 us each: opening the picture takes longer.
    for row, problem, at, raw in zip(
        rows if columns else repeat(()),
        problems,
        notes[AT].to_pylist(),
        notes[RAW].to_pylist(),
        strict=False,
    ):
        if raw is not None:
            found: Any = {"at": at, "raw": raw.decode("latin-1")}
        else:
            found = problem or row
        written.append(b"\0" + json.dumps(found, ensure_ascii=False).encode())
    return written


def read_note(text: bytes) -> Note:
    """Returns what `write_notes` wrote of one reference, without the zero."""
    if not text:
        return NO_NOTE
    found = json.loads(text)
    if isinstance(found, dict):
        return Note(at=found["at"], raw=found["raw"].encode("latin-1"))
    return Note(problem=found) if isinstance(found, str) else Note(found)


def _numbered(labels: pa.Array, classes: Sequence[str]) -> pa.Array:
    """Returns names, or lists of names, as numbers."""
    names = pa.array(classes, pa.string())
    if not pa.types.is_list(labels.type):
        return pc.index_in(labels, value_set=names).cast(pa.int64())
    numbers = pc.index_in(labels.flatten(), value_set=names).cast(pa.int64())
    return _as_lists(labels, numbers)


def _named(numbers: pa.Array, names: pa.StringArray) -> pa.Array:
    if not pa.types.is_list(numbers.type):
        return names.take(numbers)
    return _as_lists(numbers, names.take(numbers.flatten()))


def _as_lists(like: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Returns values in lists as long as others; one that is missing stays so."""
    lengths = pc.fill_null(pc.list_value_length(like), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = like.is_null() if like.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()
