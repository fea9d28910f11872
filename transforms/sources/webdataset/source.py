"""Reads WebDataset shards: each is read once from its start.

Large ones are cut between samples (`cut_shards`), if they are local and not compressed.
Files become values by the endings of their names. What the samples at the start of some
shards hold tells columns and types; a sample that does not fit is a reject.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, Kind, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile, is_archive_name
from recordmill.schemas.input_summary import InputSummary, SkippedFiles
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.encode.columns import is_list
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.arrays.headers import header_length, parse_npy
from recordmill.transforms.sources.arrays.rows import plain_values
from recordmill.transforms.sources.base import (
    Append,
    Rows,
    RowSink,
    number_ranges,
)
from recordmill.transforms.sources.images.summary import (
    DECODED,
    ENCODED,
    FACT,
    UNDECODABLE,
    all_decodable,
    decodable_in,
    observe,
    require_decodable,
    type_flags,
    warn_by_content,
)
from recordmill.transforms.sources.json_lines import (
    ObjectsSource,
    ObservedColumn,
    build_rows,
    column_of,
    flat_values,
    is_text,
)
from recordmill.transforms.sources.packing import UNPACKED_TIMES
from recordmill.transforms.sources.plain_types import (
    SEPARATOR,
    plain_schema,
    types_to_append,
)
from recordmill.transforms.sources.webdataset.samples import (
    RANGE_BYTES,
    Sample,
    ShardMembers,
    cut_shards,
    open_shard,
)
from recordmill.transforms.storage.input_stream import InputStream

MemberKind = Literal["image", "integer", "text", "json", "array", "bytes"]
Values = dict[str, Any]

# As the package webdataset decodes them, but for what only Python can unpickle.
_KINDS: dict[str, MemberKind] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif"), "image"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "integer"),
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    "npy": "array",
}
_INTEGER = re.compile(rb"[+-]?[0-9]{1,19}")
_NUMBERS = "biuf"


def kind_of(name: str) -> MemberKind:
    """Returns what a file holds, by its name behind the key.

    >>> kind_of("left.jpg"), kind_of("cls"), kind_of("jpg.txt"), kind_of("mp4")
    ('image', 'integer', 'text', 'bytes')
    """
    return _KINDS.get(name.rpartition(".")[2], "bytes")


def values_of(name: str, data: bytes, headers: dict[str, ImageHeader]) -> Values | str:
    """Returns the columns that a file becomes, or why it cannot be read.

    The name is what stands behind the key; `headers` gets the header of an image.
    """
    kind = kind_of(name)
    if kind == "image":
        try:
            header = check_image(data)
        except ImageHeaderError as error:
            return f"{name}: {error}"
        headers[name] = header
        sizes = {f"{name}/height": header.height, f"{name}/width": header.width}
        return {name: data, **sizes}
    if kind == "integer":
        text = data.strip()
        if not _INTEGER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
            return f"{name}: found {shown(data)}, expected an integer of 64 bits"
        return {name: int(text)}
    if kind == "array":
        return _array_value(name, data)
    if kind == "bytes":
        return {name: data}
    try:
        decoded = data.decode()
        values = {name: decoded if kind == "text" else json.loads(decoded)}
    except UnicodeDecodeError as error:
        return f"{name}: not UTF-8: byte {data[error.start]:#04x} at {error.start}"
    except json.JSONDecodeError as error:
        return f"{name}: not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        return f"{name}: not JSON that can be read: {error}"
    flat = flat_values(values)
    return f"{name}: {flat}" if isinstance(flat, str) else flat


def _array_value(name: str, data: bytes) -> Values | str:
    try:
        length = header_length(data[:12], name)
        header = parse_npy(data[:length], name, least_axes=0)
    except InputError as error:
        return str(error)
    dtype = header.dtype
    if dtype.kind not in _NUMBERS or (dtype.kind == "f" and dtype.itemsize > 8):
        return f"{name}: is an array of {dtype}, expected numbers or booleans"
    size = dtype.itemsize * math.prod(header.shape)
    if len(data) - length != size:
        return (
            f"{name}: its header says {size:,} bytes of values, but {len(data) - length:,} "
            "follow: the file is damaged"
        )
    flat = plain_values(np.frombuffer(data, dtype, offset=length), dtype)
    order: Literal["C", "F"] = "F" if header.is_fortran else "C"
    return {name: np.ascontiguousarray(flat.reshape(header.shape, order=order))}


Array = npt.NDArray[Any]
_DTYPES = {"int64": "i8", "uint64": "u8", "float": "f4", "double": "f8"}


def array_type(values: Sequence[Array]) -> pa.DataType:
    """Returns the type of most of these arrays: lists of fixed sizes if of one shape.

    Arrays of another number of axes do not fit.
    """
    ranks = [value.ndim for value in values]
    rank = max(set(ranks), key=lambda each: (ranks.count(each), -each))
    chosen = [value for value in values if value.ndim == rank]
    found = pa.from_numpy_dtype(np.result_type(*chosen))
    if pa.types.is_floating(found):
        found = pa.float64() if pa.types.is_float64(found) else pa.float32()
    elif pa.types.is_boolean(found) and any(v.dtype != bool for v in chosen):
        found = pa.int64()
    shapes = {value.shape for value in chosen}
    is_fixed = len(shapes) == 1 and all(next(iter(shapes)))
    for side in reversed(chosen[0].shape):
        found = pa.list_(found, side if is_fixed else -1)
    return found


def _inside(arrow_type: pa.DataType) -> tuple[pa.DataType, list[int | None]]:
    """Returns what is in lists, and the size of the lists of each level, where fixed."""
    sides: list[int | None] = []
    while is_list(arrow_type):
        is_fixed = pa.types.is_fixed_size_list(arrow_type)
        sides.append(arrow_type.list_size if is_fixed else None)
        arrow_type = arrow_type.value_type
    return arrow_type, sides


def misfit_of(value: Array, arrow_type: pa.DataType) -> str:
    """Returns why an array cannot be in a column, or ""."""
    leaf, sides = _inside(arrow_type)
    if len(sides) != value.ndim or any(
        side not in (None, found)
        for side, found in zip(sides, value.shape, strict=True)
    ):
        return f"an array of shape {list(value.shape)}"
    if not np.can_cast(value.dtype, _dtype(leaf), "same_kind"):
        return f"an array of {value.dtype}"
    return ""


def array_column(values: Sequence[Array | None], arrow_type: pa.DataType) -> pa.Array:
    """Returns arrays that all fit as a column; None is a missing one."""
    leaf, sides = _inside(arrow_type)
    dtype = _dtype(leaf)
    missing = np.array([value is None for value in values], np.bool_)
    blank = np.zeros([side or 0 for side in sides], dtype)
    parts = [blank if value is None else value for value in values]
    flat = [part.astype(dtype, copy=False).reshape(-1) for part in parts]
    joined = np.concatenate([np.zeros(0, dtype), *flat])
    column = pa.array(joined, leaf, mask=None if sides else missing)
    for level in reversed(range(len(sides))):
        mask = None if level else pa.array(missing)
        if (side := sides[level]) is not None:
            column = pa.FixedSizeListArray.from_arrays(column, side, mask=mask)
            continue
        lengths = [
            part.shape[level]
            for part in parts
            for _ in range(math.prod(part.shape[:level]))
        ]
        offsets = pa.array(offsets_of(np.array(lengths, np.int64)), pa.int32())
        column = pa.ListArray.from_arrays(offsets, column, mask=mask)
    return column


def _dtype(leaf: pa.DataType) -> Any:
    return np.dtype("bool" if pa.types.is_boolean(leaf) else _DTYPES[str(leaf)])


KEY = "key"
Types = Mapping[str, pa.DataType]
_LEAVES: dict[MemberKind, pa.DataType] = {
    "image": pa.binary(),
    "integer": pa.int64(),
    "text": pa.string(),
    "bytes": pa.binary(),
}


def member_of(column: str) -> str:
    """Returns the name of the files that a column comes from.

    >>> member_of("left.jpg/height"), member_of("json/box/x"), member_of("cls")
    ('left.jpg', 'json', 'cls')
    """
    return column.partition(SEPARATOR)[0]


def images_of(names: Sequence[str]) -> list[str]:
    """Returns the columns that are images."""
    return list(filter(is_image, names))


def is_image(name: str) -> bool:
    """Tells whether a column is an image, not its height or width."""
    return SEPARATOR not in name and kind_of(name) == "image"


@dataclass(slots=True)
class ObservedSamples:
    """What the values of some samples are."""

    names: dict[str, None] = field(default_factory=dict)  # of columns, as found
    json: dict[str, ObservedColumn] = field(default_factory=dict)
    arrays: dict[str, list[Array]] = field(default_factory=dict)  # without their values

    def add(self, values: Values) -> None:
        """Adds a sample."""
        self.names.update(dict.fromkeys(values))
        for name, value in values.items():
            kind = kind_of(member_of(name))
            if kind == "json":
                self.json.setdefault(name, ObservedColumn()).add([value])
            elif kind == "array":
                zero = np.zeros((), value.dtype)
                self.arrays.setdefault(name, []).append(
                    np.broadcast_to(zero, value.shape)
                )

    def types(self, wanted: Sequence[str] | None, uri: str) -> dict[str, pa.DataType]:
        """Returns the type of each column that is wanted; None for all."""
        types: dict[str, pa.DataType] = {}
        for name in (KEY, *self.names):
            if name in types or (wanted is not None and name not in wanted):
                continue
            if not is_text(name):  # samples with any other are rejects
                continue
            found = self._type(name)
            if found is None:
                raise InputError(
                    f"{uri}: {name!r}: lists of objects, or of values of several types, "
                    "can be no feature. Declare the other columns in a schema file "
                    "(`schema`)"
                )
            types[name] = found
        return types

    def _type(self, name: str) -> pa.DataType | None:
        if name in self.json:
            return self.json[name].arrow_type
        if name in self.arrays:
            return array_type(self.arrays[name])
        if SEPARATOR in name:  # height or width
            return pa.int64()
        return pa.string() if name == KEY else _LEAVES[kind_of(name)]


def _misfit_in(values: Values, types: Types, whose: str, *, only_arrays: bool) -> str:
    """Returns which value of a sample is not of its column's type, or ""."""
    for name, wanted in types.items():
        value = values.get(name)
        if value is None:
            continue
        kind = kind_of(member_of(name))
        if kind == "array":
            if misfit := misfit_of(value, wanted):
                return f"{name}: {misfit} is not {wanted}, its type {whose}"
        elif kind == "json" and not only_arrays and column_of([value], wanted) is None:
            return f"{name}: {shown(value)} is not {wanted}, its type {whose}"
    return ""


def batch_of(rows: Sequence[Values], types: Types) -> pa.RecordBatch | None:
    """Returns samples as columns, or None if a value of JSON does not fit."""
    arrays = []
    for name, wanted in types.items():
        values: list[Any] = [row.get(name) for row in rows]
        kind = kind_of(member_of(name))
        if kind == "array":
            column = array_column(values, wanted)
        elif kind == "json":
            column = column_of(values, wanted)
        else:
            column = pa.array(values, wanted)
        if column is None:
            return None
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(types.items())))


LEFT_OUT = "file of no sample"  # codes of issues
AGAIN = "key that came before"


def warnings_of(issues: Sequence[RowIssue]) -> tuple[str, ...]:
    """Returns what was odd, in words."""
    images = [each for each in issues if each.code == UNDECODABLE]
    warnings = warn_by_content(images)
    for each in issues:
        if each.code == LEFT_OUT:
            warnings.append(
                f"{count(each.count, 'file')} in shards passed over, such as "
                f"{each.example}: a name without a part behind a dot, or with __ "
                "around it, belongs to no sample"
            )
        if each.code == AGAIN:
            warnings.append(
                f"{count(each.count, 'sample')} with a key that came before in the "
                f"shard, such as {each.example}: each is a record of its own. If "
                "files of one sample lie apart, write the shard again with tar "
                "--sort=name"
            )
    return tuple(warnings)


def _observe_images(
    images: Sequence[str],
    headers: Sequence[dict[str, ImageHeader]],
    names: Sequence[str],
) -> tuple[TypeFlags, tuple[RowIssue, ...]]:
    """Returns whether readers decode the images of each column, and which they do not."""
    flags, issues = [], []
    for image in images:
        there = [n for n, each in enumerate(headers) if image in each]
        kinds = [(headers[n][image].kind,) for n in there]
        undecodable = observe(kinds, [names[n] for n in there])
        flags.append((*type_flags(kinds, undecodable), 0)[0])
        issues.append(undecodable)
    return tuple(flags), RowIssue.merged(issues)


SAMPLE_BYTES = 64 << 20  # of all shards, whose samples tell columns and types
BATCH_BYTES = 4 << 20  # of samples that are made rows at once
_BATCH_SAMPLES = 2000
_LEAST_BYTES = 4 << 20  # of a shard that is looked at
_ENTRY_BYTES = 24  # of a feature in a record, beside its name and its value


@dataclass(frozen=True)
class WebDatasetSource(ObjectsSource):
    """Samples in tar archives."""

    range_bytes: int = RANGE_BYTES  # of a large shard that make a range, at least
    # Of the whole input, once prepared:
    takes_any_name: bool = False  # the only file is a shard whatever its name
    members: frozenset[str] = frozenset()  # what samples may hold behind the key

    reads_archives = True
    row_name = "sample"

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        source = replace(self, takes_any_name=len(files) == 1)
        shards = source._shards(files)
        if not shards:
            raise InputError(
                f"no tar archive among {count(len(files), 'input file')}; expected shards "
                "that are named .tar (or .tar.gz, .tgz and the like) and are not empty"
            )
        named = {file.path for file in shards}
        others = [
            ("not named as a tar archive" if file.size else "empty", file.path)
            for file in files
            if file.path not in named
        ]
        source = source._look_at(shards, SkippedFiles.counted(others))
        if append is None or append.schema is None:
            return source
        fixed = types_to_append(append.schema, dict(source.types))
        members = source.members | {member_of(name) for name in fixed} - {KEY}
        types = tuple(fixed.items())
        return replace(source, types=types, members=members, fixed_schema=append.schema)

    def _look_at(
        self, shards: Sequence[InputFile], passed_over: tuple[SkippedFiles, ...]
    ) -> Self:
        """Returns the source with the columns of the first samples of some shards."""
        observed, sampled, problem, is_sampled = ObservedSamples(), 0, "", False
        share = max(_LEAST_BYTES, SAMPLE_BYTES // len(shards))
        chosen = shards[:: -(-len(shards) * _LEAST_BYTES // SAMPLE_BYTES)]
        members: set[str] = set()
        for file in chosen:
            for sample in ShardMembers(open_shard(file, self.storage)).samples():
                found = self._values_of(sample, None)
                if isinstance(found, str):
                    problem = problem or f"{file.uri}: sample {sample.key!r}: {found}"
                else:
                    sampled += 1
                    members |= sample.members.keys()
                    observed.add(found)
                if sample.start > share:
                    is_sampled = True
                    break
        if not sampled:
            told = problem or f"{shards[0].uri}: holds no files with a key"
            raise InputError(
                f"no sample can be read in {count(len(chosen), 'shard')}: {told}. A schema "
                "file leaves out columns that it does not name (`schema`)"
            )
        return replace(
            self,
            types=tuple(observed.types(self._used, shards[0].uri).items()),
            members=frozenset(members - {KEY}),
            sampled=sampled,
            is_sampled=is_sampled or len(chosen) < len(shards),
            passed_over=passed_over,
        )

    def _shards(self, files: Sequence[InputFile]) -> list[InputFile]:
        return [
            file
            for file in files
            if file.size
            and (
                self.takes_any_name
                or (is_archive_name(file.path) and file.path.lower()[-4:] != ".zip")
            )
        ]

    def understood_at_end(
        self,
        schema: Schema,
        issues: tuple[RowIssue, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> InputSummary:
        facts: tuple[tuple[str, str], ...] = ()
        if images_of(self.columns().names):
            facts = ((FACT, DECODED if decodable_in(schema) else ENCODED),)
        return InputSummary(facts, warnings_of(issues))

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return number_ranges(cut_shards(self._shards(files), self.range_bytes))

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        if self.fixed_schema is not None:
            return self.fixed_schema
        flags = dict(zip(images_of(self.columns().names), observed, strict=False))
        features = []
        for feature in plain_schema(self.columns(), nulls).features:
            if is_image(feature.name):
                seen = (flags[feature.name],) if feature.name in flags else ()
                decodable = all_decodable(seen)
                if decodable is None:
                    decodable = not feature.name.endswith(("webp", "gif"))
                feature = replace(
                    feature,
                    kind=Kind.BYTES,
                    dtype="uint8" if decodable else "bytes",
                    shape=(None, None, None) if decodable else (),
                    content=Content.IMAGE,
                )
            features.append(feature)
        return Schema(tuple(features))

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # Each file takes a header of 512 bytes, but arrays and numbers may grow.
        growth = sum(
            file.size * (1 if file.path.endswith(".tar") else UNPACKED_TIMES)
            for file in files
        )
        return 2 * growth + _ENTRY_BYTES * len(self.types)

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        path, start, stop = input_range.path, input_range.start, input_range.stop
        shard = open_shard(input_range, self.storage, (start, stop))
        found = ShardMembers(shard)
        keys = set[int]()  # hashes; some 100 bytes for each sample of the shard
        sink.add(
            observed=(0,) * len(images_of([name for name, _ in self.types])),
            nulls=(0,) * len(self.types),
        )
        for samples in _batches(found.samples()):
            yield self._rows_of(samples, input_range, shard, keys, sink)
        sink.checksums.append(FileChecksum(path, start, stop, shard.drain()))
        if found.left_out:
            name = shown(found.left_out[0]).strip("'")
            sink.add(
                issues=[RowIssue(LEFT_OUT, "", len(found.left_out), f"{path}!/{name}")]
            )

    @property
    def _used(self) -> tuple[str, ...] | None:
        """Returns the columns that a declared schema uses; None without one."""
        return self.wanted if self.as_declared else None

    def _rows_of(
        self,
        samples: Sequence[Sample],
        input_range: InputRange,
        shard: InputStream,
        keys: set[int],
        sink: RowSink,
    ) -> Rows:
        """Makes rows of samples; those that do not fit are rejects."""
        types = dict(self.types)

        def parse(sample: Sample) -> tuple[Values, dict[str, ImageHeader]] | str:
            headers: dict[str, ImageHeader] = {}
            found = self._values_of(sample, headers)
            if isinstance(found, str):
                return found
            misfit = _misfit_in(found, types, self._whose, only_arrays=True)
            return misfit or (found, headers)

        batch, values, reasons = build_rows(
            samples,
            parse,
            lambda rows: batch_of([found for found, _ in rows], types),
            lambda row: _misfit_in(row[0], types, self._whose, only_arrays=False),
            self.fixed_schema,
        )
        names = [f"{input_range.path}: {samples[index].key}" for index in values]
        headers = [own for _, own in values.values()]
        observed, issues = _observe_images(images_of([*types]), headers, names)
        again = []
        for index, name in zip(values, names, strict=True):
            hashed = hash(samples[index].key)
            again += [RowIssue(AGAIN, "", 1, name)] if hashed in keys else []
            keys.add(hashed)
        sink.add(observed=observed, issues=[*issues, *again])
        places = [(sample.start, sample.raw) for sample in samples]
        return self._made_rows(batch, places, reasons, input_range, shard, sink)

    def _values_of(
        self, sample: Sample, headers: dict[str, ImageHeader] | None
    ) -> Values | str:
        """Returns the columns of a sample, or why there are none."""
        if sample.problem:
            return sample.problem
        if not is_text(sample.key):
            return f"the key {shown(sample.key)} is not UTF-8"
        if sample.members.keys() & {KEY, ""}:
            return (
                f"a file is named {KEY!r} or nothing behind the key of the sample, which "
                "can be no feature (`key` is that of the samples' keys): rename it"
            )
        values: Values = {KEY: sample.key}
        known = dict(self.types)
        used = None if self._used is None else set(map(member_of, self._used))
        for name, data in sample.members.items():
            if used is not None and name not in used:
                continue
            if headers is not None and name not in self.members:
                return self._unknown(name)
            found = values_of(name, data, {} if headers is None else headers)
            if isinstance(found, str):
                return found
            values |= found
        if headers is not None:
            if self._used is None and not values.keys() <= known.keys():
                return self._unknown(next(name for name in values if name not in known))
            if problem := self._undecodable(headers):
                return problem
        return values

    def _undecodable(self, headers: dict[str, ImageHeader]) -> str:
        """Returns why images cannot be appended to those of the dataset, or ""."""
        for feature in self.fixed_schema.features if self.fixed_schema else ():
            if feature.name in headers and feature.dtype != "bytes":
                try:
                    require_decodable(headers[feature.name].kind)
                except ImageHeaderError as error:
                    return f"{feature.name}: {error}"
        return ""


def _batches(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    held = 0
    for sample in samples:
        # A large one alone: Arrow's columns of bytes end at 2 GiB.
        is_full = held + len(sample.raw) > BATCH_BYTES
        if batch and (is_full or len(batch) >= _BATCH_SAMPLES):
            yield batch
            batch, held = [], 0
        batch.append(sample)
        held += len(sample.raw)
    if batch:
        yield batch
