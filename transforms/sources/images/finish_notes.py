"""Puts pictures into order once all is noted of them, and counts what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import BY_SPLIT, CLASSES, PassedOver, Understood
from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN
from recordmill.schemas.text import count, first_names
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.images.class_order import order_classes
from recordmill.transforms.sources.images.label_map import LabelMap
from recordmill.transforms.sources.images.noted import Gathered
from recordmill.transforms.sources.images.picture_notes import (
    AT,
    FEATURE,
    LABEL,
    PROBLEM,
    RAW,
    SPLIT,
    NoteTypes,
)


@dataclass(frozen=True, slots=True)
class NotedPictures:
    """The pictures of an input, and what is noted of each.

    Attributes:
      listing: the pictures, those of a split together; then rows that name none.
      notes: a row for each.
      types: of the labels and features.
      classes: the names that labels count.
      splits: those that the pictures are in, if each is in one.
      told: what was found.
      checksums: of the tables and lists.
    """

    listing: tuple[InputFile, ...]
    notes: pa.Table
    types: NoteTypes
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    told: Understood
    checksums: tuple[FileChecksum, ...]


def finish_notes(
    found: Gathered,
    asked: AskedLabels,
    label_map: LabelMap | None,
    map_file: InputFile | None,
) -> NotedPictures:
    """Puts the pictures into order, and counts what is left out.

    Args:
      found: all that is noted of them.
      asked: what the options say.
      label_map: names of the classes of labels, or None.
      map_file: the file that it was read from.

    Raises:
      InputError: nothing is left, or there cannot be such splits.
    """
    passed_over: list[tuple[str, str]] = []
    kept = np.ones(len(found.pictures), np.bool_)
    if asked.unlisted == "leave_out":
        kept = found.unlisted == ""
        passed_over += [
            (found.unlisted[index], found.pictures[index].path)
            for index in np.flatnonzero(~kept).tolist()
        ]
    else:
        unlisted = np.flatnonzero(found.unlisted != "")
        found.problems[unlisted] = found.unlisted[unlisted]
        if len(unlisted):
            first = int(unlisted[0])
            found.warnings.append(
                f"{count(len(unlisted), 'picture')} will be rejected, such as "
                f"{found.pictures[first].path}: {found.unlisted[first]}. Use "
                "`unlisted=leave_out` to leave them out"
            )
    valid = kept & (found.problems == "")
    classes: tuple[str, ...] = ()
    if found.labels is not None:
        map_uri = map_file.uri if map_file else ""
        ordered = order_classes(
            found, valid, label_map, map_uri, of_objects=asked.table_rows == "object"
        )
        found.labels, classes = ordered.labels, ordered.classes
        found.warnings += ordered.warnings
        for index in np.flatnonzero(valid & ordered.left_out).tolist():
            reason = "the label map leaves out its label"
            passed_over.append((reason, found.pictures[index].path))
        kept &= ~(valid & ordered.left_out)
        valid &= kept
    if not kept.any():
        raise InputError(
            f"{found.root}: nothing is left of {len(found.pictures):,} pictures: "
            f"{passed_over[0][0]}"
        )
    splits = _checked_splits(found, valid)
    order = np.flatnonzero(kept)
    order = order[np.argsort(found.splits[order].astype(str), kind="stable")]
    types = NoteTypes(
        has_labels=found.labels is not None,
        has_several=found.labels is not None and pa.types.is_list(found.labels.type),
        features=tuple((name, each.type) for name, each in found.features.items()),
        optional=tuple(
            name
            for name, each in found.features.items()
            if each.filter(pa.array(valid)).null_count
        ),
    )
    listing = [found.pictures[index] for index in order.tolist()]
    listing += [
        InputFile(file.path, file.uri, 0, problem=reject.reason)
        for file, reject in found.rejects
    ]
    return NotedPictures(
        tuple(listing),
        _columns(found, order),
        types,
        classes,
        splits,
        _told(found, valid, classes, passed_over),
        tuple(found.checksums),
    )


def _checked_splits(found: Gathered, valid: np.ndarray) -> tuple[str, ...]:
    """Returns the splits, if every picture is in one; a reject is put into the first."""
    counts = Counter(found.splits[valid].tolist())
    names = sorted(counts.keys() - {""}, key=lambda name: (name != "train", name))
    for name in names:
        if not SPLIT_PATTERN.fullmatch(name):
            first = found.pictures[int(np.flatnonzero(found.splits == name)[0])].path
            raise InputError(
                f"{first}: is in the split {shown(name)}, expected letters, digits, '_' "
                "and '-': rename it, or use `table_split_column=none` if that column is not one "
                "of splits"
            )
    if len(names) > MAX_SPLITS:
        raise InputError(
            f"{found.root}: its pictures are in {len(names):,} splits, expected at most "
            f"{MAX_SPLITS}: use `table_split_column=none` if that column is not one of splits"
        )
    found.splits[~valid] = names[0] if names and not counts[""] else ""
    return tuple(names) if names and not counts[""] else ()


def _columns(found: Gathered, order: np.ndarray) -> pa.Table:
    """Returns the notes of the pictures in this order, then those of rejected rows."""
    num_rows = len(found.rejects)
    last = found.splits[order[-1]] if len(order) else ""
    indices = pa.array(order)
    rejects = [reject for _, reject in found.rejects]
    columns = {
        SPLIT: pa.array(
            [*found.splits[order].tolist(), *[last] * num_rows], pa.string()
        ),
        PROBLEM: pa.array(
            [*found.problems[order].tolist(), *[""] * num_rows], pa.string()
        ),
        AT: pa.array(
            [*[0] * len(order), *map(attrgetter("position"), rejects)], pa.int64()
        ),
        RAW: pa.array(
            [*[None] * len(order), *map(attrgetter("raw"), rejects)], pa.binary()
        ),
    }
    more = dict({LABEL: found.labels} if found.labels is not None else {})
    more |= {FEATURE + name: each for name, each in found.features.items()}
    for name, each in more.items():
        columns[name] = pa.concat_arrays(
            [each.take(indices), pa.nulls(num_rows, each.type)]
        )
    return pa.table(columns)


def _told(
    found: Gathered,
    valid: np.ndarray,
    classes: Sequence[str],
    passed_over: Sequence[tuple[str, str]],
) -> Understood:
    facts = list(found.facts)
    if found.labels is None:
        facts.append((CLASSES, "none, as there are no labels"))
    else:
        labels = found.labels.filter(pa.array(valid))
        if pa.types.is_list(labels.type):
            labels = labels.flatten()
        counts = {
            each["values"]: each["counts"]
            for each in pc.value_counts(labels).to_pylist()
        }
        told = [f"{name} {counts.get(name, 0):,}" for name in classes]
        facts.append((CLASSES, f"{len(classes):,} ({first_names(told)})"))
        if empty := [name for name in classes if not counts.get(name)]:
            found.warnings.append(
                f"no picture has the label {first_names(empty)}, which `label_map` names"
            )
    splits = Counter(found.splits[valid].tolist())
    if set(splits) - {""}:
        named = [f"{name or 'no split'} {n:,}" for name, n in sorted(splits.items())]
        facts.append((BY_SPLIT, first_names(named)))
    return Understood(
        tuple(facts), tuple(found.warnings), PassedOver.counted(passed_over)
    )
