"""Reads WebDataset shards, each once from its start.

Large shards that are local and uncompressed are cut between samples (`cut_shards`). The
ending of a file's name determines how it becomes values. The samples at the start of some
shards determine columns and types; a sample that does not fit becomes a reject.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow.types as pt

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile, is_archive_name
from recordmill.schemas.input_summary import InputReport, InputWarning, SkippedFiles
from recordmill.schemas.input_text import as_input_error
from recordmill.schemas.names import parse_labels
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count, is_utf8
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.encode.columns import inside_lists
from recordmill.transforms.encode.row_errors import utf8_reason
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.images.summary import (
    UNDECODABLE,
    append_problem,
    decoding_report,
    observe_images,
    warn_undecodable,
    with_images,
)
from recordmill.transforms.sources.arrays.headers import read_npy
from recordmill.transforms.sources.arrays.rows import to_native_dtype
from recordmill.transforms.sources.base import (
    Append,
    InputFindings,
    RangeFindings,
    Rows,
    number_ranges,
)
from recordmill.transforms.sources.hugging_face import (
    check_labels,
    report_unlabelled,
    require_same_classes,
)
from recordmill.transforms.sources.json_lines import (
    FEATURE_BYTES,
    ObjectsSource,
    ObservedColumn,
    Row,
    RowPositions,
    flatten_row,
)
from recordmill.transforms.sources.plain_types import SEPARATOR, plain_schema
from recordmill.transforms.sources.tfrecord.features import MetadataFiles, folder_of
from recordmill.transforms.storage.archives import (
    BLOCK,
    check_archive_end,
    is_tar,
    iterate_members,
    open_tar,
    tar_member_problem,
)
from recordmill.transforms.storage.input_stream import (
    TEXT_BYTES,
    UNPACKED_TIMES,
    InputStream,
    compression_of,
)
from recordmill.transforms.storage.read_member import require_plausible
from recordmill.transforms.storage.reading import is_local, local_path, open_stream

# The file `train/0001.left.jpg` has the key `train/0001` and the ending `left.jpg`, as in
# the package webdataset. A hidden file has no key.
#
# Large shards are cut between samples, by a walk along the headers of their files. Only
# the previous header locates the next header, so the walk begins at the start of a shard.
# Some shards are not cut: shards with a repeated key, which is reported for the whole
# shard, damaged or truncated shards, and shards with a header that applies to all files
# after it.

_NAME = re.compile(r"((?:.*/|)[^./]+)[.]([^/]*)", re.DOTALL)


def split_key(name: str) -> tuple[str, str] | None:
    """Returns the key and the ending of a file, or None if it belongs to no sample.

    >>> split_key("train/0001.left.JPG"), split_key(".hidden"), split_key("__key__.txt__")
    (('train/0001', 'left.jpg'), None, None)
    """
    match = _NAME.fullmatch(name)
    if match is None or (name.startswith("__") and name.endswith("__")):
        return None
    return match[1], match[2].lower()


STEP_BYTES = 4 << 20  # read at once: many members by one request


def open_shard(
    file: InputFile | InputRange,
    storage: StorageOptions,
    part: tuple[int, int] | None = None,
) -> InputStream:
    """Opens a shard, or a part of an uncompressed shard, as a tar archive."""
    shard = open_stream(file, storage, part=part, window_bytes=STEP_BYTES)
    head = shard.read(BLOCK)
    if not shard.start and (compression := compression_of(head)):
        shard = open_stream(
            file, storage, compression=compression, window_bytes=TEXT_BYTES
        )
        head = shard.read(BLOCK)
    shard.seek(shard.start)
    if len(head) < BLOCK or not is_tar(head):
        raise InputError(
            f"{file.uri}: is not a tar archive, as required for a shard. Copy it "
            "again, or leave it out of the inputs"
        )
    return shard


_DAMAGED_HINT = "The shard is damaged: copy it again, or leave it out of the inputs"
_TAR_ERRORS = (*(tarfile.TarError, ValueError, OverflowError, RecursionError, OSError),)


@dataclass(slots=True)
class Sample:
    """The files with one key, which become one row."""

    key: str
    start: int  # byte offset in the archive of the data of its first file
    members: dict[str, bytes] = field(default_factory=dict)  # contents by ending
    raw: bytes = b""  # bytes of the archive from `start` to the end of the last file
    problem: str = ""  # reason to reject the sample, or ""


@dataclass(slots=True)
class ShardMembers:
    """A reader of the samples of a shard."""

    shard: InputStream
    unmatched_names: list[str] = field(
        default_factory=list
    )  # names of files without a sample

    def samples(self) -> Iterator[Sample]:
        """Yields the samples in order; the last sample may be incomplete."""
        try:
            yield from self._samples()
        except InputError:
            raise
        except _TAR_ERRORS as error:
            raise InputError(
                f"{self.shard.uri}: cannot be read as a tar archive: {error}. {_DAMAGED_HINT}"
            ) from error

    def _samples(self) -> Iterator[Sample]:
        shard, sample, end = self.shard, None, 0
        uri = shard.uri
        with open_tar(shard) as tar:
            members = iterate_members(tar)
            is_first = True
            # A Python loop over files: tarfile parses each header anyway (20 us).
            while True:
                at = tar.offset
                is_over = (
                    not is_first and at >= shard.stop
                )  # first header: already read
                is_first = False
                if is_over and shard.stop < shard.size:
                    if sample is not None:  # the next range reads the next sample
                        yield self._complete_sample(sample, end)
                    return
                shard.keep_from_offset = max(
                    0, (sample.start if sample else at) - BLOCK
                )
                if shard.is_packed:
                    require_plausible(uri, at, shard.packed_bytes_read)
                try:
                    member = next(members, None)
                except tarfile.ReadError:
                    shard.seek(max(0, at - 1))
                    if shard.read(1):
                        raise
                    yield self._truncated_sample(sample, min(end, at))  # in the padding
                    return
                if member is None:
                    break
                if member.isdir():
                    continue
                key_and_name = split_key(member.name)
                if key_and_name is None:
                    self.unmatched_names.append(member.name)
                    continue
                key, name = key_and_name
                if sample is None or sample.key != key:
                    if sample is not None:
                        yield self._complete_sample(sample, end)
                    sample = Sample(key, member.offset_data)
                    shard.keep_from_offset = max(0, sample.start - BLOCK)
                if not self._add_member(sample, name, member):
                    yield self._truncated_sample(sample, member.offset_data)
                    return
                end = member.offset_data + (member.size if member.isreg() else 0)
            if not check_archive_end(shard, tar.offset, _DAMAGED_HINT):
                yield self._truncated_sample(sample, tar.offset)
            elif sample is not None:
                yield self._complete_sample(sample, end)

    def _add_member(self, sample: Sample, name: str, member: tarfile.TarInfo) -> bool:
        """Adds a file to a sample; returns whether the archive has the whole file."""
        if problem := tar_member_problem(member):
            sample.problem = sample.problem or f"{member.name!r} is {problem}"
            return True
        if name in sample.members:
            sample.problem = sample.problem or f"contains two files {name!r}"
        if member.offset_data + member.size - sample.start > MAX_CELL_BYTES:
            sample.problem = (
                f"has more bytes than a record can hold ({MAX_CELL_BYTES:,})"
            )
            sample.members.clear()
            return self._skip_member(sample, member)
        self.shard.seek(member.offset_data)
        content = self.shard.read(member.size)
        sample.members[name] = content
        return len(content) == member.size

    def _skip_member(self, sample: Sample, member: tarfile.TarInfo) -> bool:
        """Reads past a skipped file; returns whether the archive has the whole file."""
        at, stop = member.offset_data, member.offset_data + member.size
        sample.start = at  # so that the stream releases the bytes before it
        while at < stop:
            self.shard.keep_from_offset = at
            self.shard.seek(at)
            read = len(self.shard.read(min(STEP_BYTES, stop - at)))
            if not read:
                return False
            at += read
        sample.start = stop
        return True

    def _complete_sample(self, sample: Sample, end: int) -> Sample:
        """Adds the raw bytes to a complete sample and returns it."""
        at = self.shard.tell()
        if len(sample.members) == 1 and not sample.problem:
            (sample.raw,) = sample.members.values()
            return sample
        self.shard.seek(sample.start)
        sample.raw = self.shard.read(max(0, end - sample.start))
        self.shard.seek(at)
        return sample

    def _truncated_sample(self, sample: Sample | None, at: int) -> Sample:
        """Returns the incomplete sample at the end of a truncated shard."""
        sample = sample or Sample("", at)
        self.shard.seek(sample.start)
        sample.raw = self.shard.read()
        size = sample.start + len(sample.raw)
        sample.problem = (
            f"the shard ends at byte {size:,} without an end-of-archive marker, so "
            "files of this sample and all later samples may be missing: copy it again"
        )
        return sample


RANGE_BYTES = 32 << 20
# More shards are not cut: each is a range, so all workers are busy without the walk.
MAX_CUT_SHARDS = 64


def cut_shards(
    files: Sequence[InputFile], range_bytes: int
) -> list[tuple[InputFile, int, int]]:
    """Returns the ranges as (file, start, stop), in the order of the shards."""
    parts = []
    for file in files:
        ends = [file.size]
        if len(files) <= MAX_CUT_SHARDS and file.size >= 2 * range_bytes:
            ends = [*_find_cuts(file, range_bytes), file.size]
        starts = [0, *ends[:-1]]
        parts += [(file, *pair) for pair in zip(starts, ends, strict=True)]
    return parts


def _find_cuts(file: InputFile, range_bytes: int) -> list[int]:
    """Returns offsets of samples with at least `range_bytes` bytes between them."""
    if not is_local(file.uri):
        return []  # the walk would need a request per header
    keys: set[int] = set()  # hashes of keys
    cuts: list[int] = []
    key = ""
    # Errors are reported when the shard is read.
    with (
        suppress(*_TAR_ERRORS),
        Path(local_path(file.uri)).open("rb", 0) as shard,
        open_tar(shard) as tar,
    ):
        # A Python loop over files: some 20 us each, a fifth of the time to read the file.
        for member in iterate_members(tar):
            key_and_name = None if member.isdir() else split_key(member.name)
            if key_and_name is None or key_and_name[0] == key:
                continue
            key = key_and_name[0]
            if hash(key) in keys:
                return []
            keys.add(hash(key))
            min_offset = (cuts[-1] if cuts else 0) + range_bytes
            if min_offset <= member.offset <= file.size - range_bytes:
                cuts.append(member.offset)
        shard.seek(tar.offset)
        if shard.read(BLOCK) == bytes(BLOCK) and not tar.pax_headers:
            return cuts
    return []


MemberKind = Literal["image", "integer", "text", "json", "array", "bytes"]
# As in the decoders of the package webdataset, except for pickled objects.
_KINDS_BY_ENDING: dict[str, MemberKind] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif"), "image"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "integer"),
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    "npy": "array",
}
_INTEGER = re.compile(rb"[+-]?[0-9]{1,19}")


def member_kind(name: str) -> MemberKind:
    """Returns the kind of a file's content, by its name after the key.

    >>> member_kind("left.jpg"), member_kind("cls"), member_kind("jpg.txt"), member_kind("mp4")
    ('image', 'integer', 'text', 'bytes')
    """
    return _KINDS_BY_ENDING.get(name.rpartition(".")[2], "bytes")


def parse_member(
    name: str, content: bytes, headers: dict[str, ImageHeader]
) -> Row | str:
    """Returns the columns that a file becomes, or the reason to reject its sample.

    Args:
      name: Name of the file after the key.
      content: Content of the file.
      headers: Receives the header if the file is an image.
    """
    kind = member_kind(name)
    if kind == "image":
        try:
            header = check_image(content)
        except ImageHeaderError as error:
            return f"{name}: {error}"
        headers[name] = header
        sizes = {f"{name}/height": header.height, f"{name}/width": header.width}
        return {name: content, **sizes}
    if kind == "integer":
        text = content.strip()
        if not _INTEGER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
            return f"{name}: found {shorten(content)}, expected an integer of 64 bits"
        return {name: int(text)}
    if kind == "array":
        try:
            array = read_npy(content, name)
        except InputError as error:
            return str(error)
        return {name: to_native_dtype(array, array.dtype)}
    if kind == "bytes":
        return {name: content}
    try:
        decoded = content.decode()
        columns = {name: decoded if kind == "text" else json.loads(decoded)}
    except UnicodeDecodeError:
        return f"{name}: {utf8_reason(content, 'file')}"
    except json.JSONDecodeError as error:
        return f"{name}: not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        return f"{name}: not JSON that can be read: {error}"
    flat = flatten_row(columns)
    return f"{name}: {flat}" if isinstance(flat, str) else flat


KEY_COLUMN = "key"


def member_name(column: str) -> str:
    """Returns the name, after the key, of the files that a column comes from.

    >>> member_name("left.jpg/height"), member_name("json/box/x"), member_name("cls")
    ('left.jpg', 'json', 'cls')
    """
    return column.partition(SEPARATOR)[0]


def image_columns(names: Sequence[str]) -> list[str]:
    """Returns the image columns."""
    return list(filter(is_image, names))


def is_image(name: str) -> bool:
    """Returns whether a column holds images, not their height or width."""
    return SEPARATOR not in name and member_kind(name) == "image"


UNMATCHED_FILE = "file without a sample"  # codes of row issues
REPEATED_KEY = "repeated key"


def create_warnings(issues: Sequence[RowIssue]) -> tuple[InputWarning, ...]:
    """Returns warnings about row issues: undecodable images, skipped files, keys."""
    images = [issue for issue in issues if issue.code == UNDECODABLE]
    warnings = warn_undecodable(images)
    for issue in issues:
        if issue.code == UNMATCHED_FILE:
            message = (
                f"{format_count(issue.count, 'file')} in shards skipped, such as "
                f"{issue.example}: a name without an extension, or with __ around it, "
                "does not belong to a sample"
            )
            warnings.append(InputWarning("no-sample", message))
        if issue.code == REPEATED_KEY:
            message = (
                f"{format_count(issue.count, 'sample')} with a key that the shard already had, "
                f"such as {issue.example}: each becomes a separate record. If files of "
                "one sample are not adjacent, write the shard again with tar "
                "--sort=name"
            )
            warnings.append(InputWarning("repeated-key", message))
    return tuple(warnings)


BATCH_BYTES = 4 << 20  # size of the samples that are converted at once
_BATCH_SAMPLES = 2000


@dataclass(frozen=True)
class WebDatasetSource(ObjectsSource):
    """A source of samples in tar archives."""

    range_bytes: int = RANGE_BYTES  # minimum size of the ranges of a large shard
    # whether the single input file is a shard whatever its name, after `prepare`
    takes_any_name: bool = False
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels_checksums: tuple[FileChecksum, ...] = ()  # checksums of the labels files

    reads_archives = True
    row_name = "sample"
    min_sample_bytes = 4 << 20

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        source = replace(self, takes_any_name=len(files) == 1)
        shards = source._files_with_rows(files)
        if not shards:
            raise InputError(
                f"no tar archive among {format_count(len(files), 'input file')}; expected shards "
                "that are named .tar (or .tar.gz, .tgz and the like) and are not empty"
            )
        prepared_source = source._prepare_columns(shards, (), append)
        metadata_files = MetadataFiles(files, self.storage)
        classes = prepared_source._find_classes(
            metadata_files, folder_of(shards[0].path)
        )
        used_paths = {file.path for file in shards} | metadata_files.checksums.keys()
        skipped_files = [
            ("not named as a tar archive" if file.size else "empty", file.path)
            for file in files
            if file.path not in used_paths
        ]
        return replace(
            prepared_source,
            classes=classes,
            labels_checksums=tuple(metadata_files.checksums.values()),
            skipped_files=SkippedFiles.count_by_reason(skipped_files),
        )

    def _find_classes(
        self, metadata_files: MetadataFiles, folder: str
    ) -> Mapping[str, tuple[str, ...]]:
        """Returns class names by column, from labels files next to the shards."""
        classes = {}
        features = self.fixed_schema.features if self.fixed_schema else ()
        known_classes = {
            feature.name: feature.class_names
            for feature in features
            if feature.class_names
        }
        for name, kind in self.types:
            file = FeatureSpec(name, Kind.INT64).labels_file
            is_label = pt.is_integer(inside_lists(kind)[0]) and not self.as_declared
            content = metadata_files.read_in_folder(folder, file) if is_label else None
            with as_input_error(file, "class names in UTF-8, one per line"):
                names = parse_labels(content or b"")
            if names or name in known_classes:
                classes[name] = known_classes.get(name, names)
                require_same_classes(file, name, names or classes[name], classes[name])
        return classes

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.labels_checksums

    def _first_rows(
        self, file: InputFile, num_bytes: int, observed: Mapping[str, ObservedColumn]
    ) -> Iterator[tuple[int, list[Row | str], None]]:
        for sample in ShardMembers(open_shard(file, self.storage)).samples():
            row = self._sample_columns(sample, {})
            if isinstance(row, str):
                row = f"sample {sample.key!r}: {row}"
            yield sample.start, [row], None

    def _no_rows_error(self, files: Sequence[InputFile], problem: str) -> InputError:
        problem = problem or f"{files[0].uri}: contains no files with a key"
        return InputError(
            f"no sample can be read in {format_count(len(files), 'shard')}: {problem}. A schema "
            "file leaves out columns that it does not name (`schema`)"
        )

    def _files_with_rows(self, files: Sequence[InputFile]) -> list[InputFile]:
        return [
            file
            for file in files
            if file.size
            and (
                self.takes_any_name
                or (is_archive_name(file.path) and file.path.lower()[-4:] != ".zip")
            )
        ]

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        if input_findings is None:
            class_counts = [
                f"{n} {format_count(len(c), 'class')}"
                for n, c in sorted(self.classes.items())
            ]
            names = (("labels files", ", ".join(class_counts)),) if class_counts else ()
            return super().input_report().merged_with(InputReport(names))
        facts = (
            *decoding_report(input_findings.schema),
            *self._left_out_lines(input_findings),
        )
        facts += report_unlabelled(input_findings.issues)
        return InputReport(facts, create_warnings(input_findings.issues))

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        parts = cut_shards(self._files_with_rows(files), self.range_bytes)
        return number_ranges(parts, self.splits)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        if self.fixed_schema is not None:
            return self.fixed_schema
        features = [
            replace(feature, class_names=self.classes.get(feature.column, ()))
            for feature in plain_schema(self.columns(), nulls).features
        ]
        schema = Schema(tuple(features))
        return with_images(schema, image_columns(self.columns().names), observed)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # Headers of 512 bytes per file are dropped, but arrays and numbers can grow.
        growth = sum(
            file.size * (1 if file.path.endswith(".tar") else UNPACKED_TIMES)
            for file in files
        )
        return 2 * growth + FEATURE_BYTES * len(self.columns())

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        path, start, stop = input_range.path, input_range.start, input_range.stop
        shard = open_shard(input_range, self.storage, (start, stop))
        shard_members = ShardMembers(shard)
        keys = set[int]()  # hashes of keys; some 100 bytes per sample of the shard
        range_findings.add_batch_findings(
            observed=(0,) * len(image_columns(self.columns().names)),
            nulls=(0,) * len(self.columns()),
        )
        for samples in _batch_samples(shard_members.samples()):
            yield self._rows_of_samples(
                samples, input_range, shard, keys, range_findings
            )
        range_findings.checksums.append(
            FileChecksum(path, start, stop, shard.checksum_of_part())
        )
        if shard_members.unmatched_names:
            name = shorten(shard_members.unmatched_names[0]).strip("'")
            range_findings.add_batch_findings(
                issues=[
                    RowIssue(
                        UNMATCHED_FILE,
                        "",
                        len(shard_members.unmatched_names),
                        f"{path}!/{name}",
                    )
                ]
            )

    def _rows_of_samples(
        self,
        samples: Sequence[Sample],
        input_range: InputRange,
        shard: InputStream,
        keys: set[int],
        range_findings: RangeFindings,
    ) -> Rows:
        """Converts samples to rows; samples that do not fit become rejects."""
        headers: list[dict[str, ImageHeader]] = [{} for _ in samples]
        parsed = dict(enumerate(map(self._parse_sample, samples, headers)))
        starts = np.array([sample.start for sample in samples], np.int64)
        places = RowPositions(starts, lambda index: samples[index].raw)
        rows, kept_rows = self._create_rows(
            parsed, places, input_range, shard, range_findings
        )
        label_reasons, label_issues = check_labels(
            rows.batch, self.classes, input_range.uri
        )
        rows = range_findings.reject_rows(rows, label_reasons, input_range)
        kept_rows = kept_rows[np.delete(np.arange(len(kept_rows)), [*label_reasons])]
        names = [f"{input_range.path}: {samples[index].key}" for index in kept_rows]
        observed, issues = observe_images(
            image_columns(self.columns().names),
            [headers[index] for index in kept_rows],
            names,
        )
        key_issues = []
        for index, name in zip(kept_rows, names, strict=True):
            hashed = hash(samples[index].key)
            key_issues += (
                [RowIssue(REPEATED_KEY, "", 1, name)] if hashed in keys else []
            )
            keys.add(hashed)
        range_findings.add_batch_findings(
            observed=observed, issues=[*issues, *key_issues, *label_issues]
        )
        return rows

    def _parse_sample(
        self, sample: Sample, headers: dict[str, ImageHeader]
    ) -> Row | str:
        row = self._sample_columns(sample, headers)
        if isinstance(row, str):
            return row
        problem = self._unknown_key_reason(row) or append_problem(
            headers, self.fixed_schema
        )
        return problem or row

    def _sample_columns(
        self, sample: Sample, headers: dict[str, ImageHeader]
    ) -> Row | str:
        """Returns the columns of a sample, or the reason to reject it."""
        if sample.problem:
            return sample.problem
        if not is_utf8(sample.key):
            return f"the key {shorten(sample.key)} is not UTF-8"
        if sample.members.keys() & {KEY_COLUMN, ""}:
            return (
                f"a file has the extension {KEY_COLUMN!r} or none after the key of the "
                "sample, which cannot be a feature (`key` is the feature with the "
                "keys): rename it"
            )
        row: Row = {KEY_COLUMN: sample.key}
        used = set(map(member_name, self.requested_columns))
        for name, content in sample.members.items():
            if self.as_declared and name not in used:
                continue
            file_columns = parse_member(name, content, headers)
            if isinstance(file_columns, str):
                return file_columns
            row |= file_columns
        return row


def _batch_samples(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    num_bytes = 0
    for sample in samples:
        # A large sample is a batch of its own: Arrow's binary columns end at 2 GiB.
        is_full = num_bytes + len(sample.raw) > BATCH_BYTES
        if batch and (is_full or len(batch) >= _BATCH_SAMPLES):
            yield batch
            batch, num_bytes = [], 0
        batch.append(sample)
        num_bytes += len(sample.raw)
    if batch:
        yield batch
