"""Reads WebDataset shards: each is read once from its start.

Large ones are cut between samples (`cut_shards`), if they are local and not compressed.
Files become values by the endings of their names. What the samples at the start of some
shards hold tells columns and types; a sample that does not fit is a reject.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, Kind, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile, is_archive_name
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.arrays.headers import header_length, parse_npy
from recordmill.transforms.sources.arrays.rows import plain_values
from recordmill.transforms.sources.base import (
    Append,
    Findings,
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
from recordmill.transforms.sources.objects import (
    ENTRY_BYTES,
    ObjectsSource,
    Row,
    flat_values,
    is_text,
)
from recordmill.transforms.sources.plain_types import (
    SEPARATOR,
    plain_schema,
)
from recordmill.transforms.sources.webdataset.samples import (
    RANGE_BYTES,
    Sample,
    ShardMembers,
    cut_shards,
    open_shard,
)
from recordmill.transforms.storage.input_stream import UNPACKED_TIMES, InputStream

MemberKind = Literal["image", "integer", "text", "json", "array", "bytes"]
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


def values_of(name: str, data: bytes, headers: dict[str, ImageHeader]) -> Row | str:
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


def _array_value(name: str, data: bytes) -> Row | str:
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


KEY = "key"


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


BATCH_BYTES = 4 << 20  # of samples that are made rows at once
_BATCH_SAMPLES = 2000


@dataclass(frozen=True)
class WebDatasetSource(ObjectsSource):
    """Samples in tar archives."""

    range_bytes: int = RANGE_BYTES  # of a large shard that make a range, at least
    # once prepared: the only file is a shard whatever its name
    takes_any_name: bool = False

    reads_archives = True
    row_name = "sample"
    least_bytes = 4 << 20

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
        return source._prepared(shards, others, append)

    def _first_rows(
        self, file: InputFile, num_bytes: int
    ) -> Iterator[tuple[int, list[Row | str]]]:
        for sample in ShardMembers(open_shard(file, self.storage)).samples():
            found = self._values_of(sample, {})
            if isinstance(found, str):
                found = f"sample {sample.key!r}: {found}"
            yield sample.start, [found]

    def _no_rows(self, files: Sequence[InputFile], problem: str) -> InputError:
        problem = problem or f"{files[0].uri}: holds no files with a key"
        return InputError(
            f"no sample can be read in {count(len(files), 'shard')}: {problem}. A schema "
            "file leaves out columns that it does not name (`schema`)"
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

    def understood(self, found: Findings | None = None) -> InputSummary:
        if found is None:
            return super().understood()
        facts: tuple[tuple[str, str], ...] = ()
        if images_of(self.columns().names):
            facts = ((FACT, DECODED if decodable_in(found.schema) else ENCODED),)
        return InputSummary(facts, warnings_of(found.issues))

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
        return 2 * growth + ENTRY_BYTES * len(self.types)

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

    def _rows_of(
        self,
        samples: Sequence[Sample],
        input_range: InputRange,
        shard: InputStream,
        keys: set[int],
        sink: RowSink,
    ) -> Rows:
        """Makes rows of samples; those that do not fit are rejects."""
        headers: list[dict[str, ImageHeader]] = [{} for _ in samples]
        parsed = list(map(self._parse, samples, headers))
        places = [(sample.start, sample.raw) for sample in samples]
        rows, kept = self._made_rows(parsed, places, input_range, shard, sink)
        names = [f"{input_range.path}: {samples[index].key}" for index in kept]
        observed, issues = _observe_images(
            images_of(self.columns().names), [headers[index] for index in kept], names
        )
        again = []
        for index, name in zip(kept, names, strict=True):
            hashed = hash(samples[index].key)
            again += [RowIssue(AGAIN, "", 1, name)] if hashed in keys else []
            keys.add(hashed)
        sink.add(observed=observed, issues=[*issues, *again])
        return rows

    def _parse(self, sample: Sample, headers: dict[str, ImageHeader]) -> Row | str:
        found = self._values_of(sample, headers)
        if isinstance(found, str):
            return found
        return self._unknown_in(found) or self._undecodable(headers) or found

    def _values_of(self, sample: Sample, headers: dict[str, ImageHeader]) -> Row | str:
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
        values: Row = {KEY: sample.key}
        used = set(map(member_of, self.wanted))
        for name, data in sample.members.items():
            if self.as_declared and name not in used:
                continue
            found = values_of(name, data, headers)
            if isinstance(found, str):
                return found
            values |= found
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
