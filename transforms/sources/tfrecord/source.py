"""Reads TFRecord files: keeps their records byte for byte, or decodes them to columns.

Records that are kept are not parsed: their frames are checked and written again as they
are. What features they have is known from files beside them, from a schema, or inferred
from a sample. The split of a file is known from such files, or from its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.declared import DeclaredSchema
from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile, member_of
from recordmill.schemas.input_summary import NOTHING, InputSummary, SkippedFiles
from recordmill.schemas.job import SPLIT_PATTERN
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.options import Payload
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.decode.examples import Unknown
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.sources.base import (
    FRAMED,
    REFERENCE,
    Append,
    ReferencedRows,
    Rows,
    RowSink,
    Source,
    missing_required,
    number_ranges,
)
from recordmill.transforms.sources.built_in import (
    Records,
    SplitFrom,
    TfrecordOptions,
)
from recordmill.transforms.sources.registry import Request
from recordmill.transforms.sources.tfrecord.features import (
    RAW,
    BesideFiles,
    ChosenFeatures,
    SampledRecord,
    Wanted,
    choose_features,
    folder_of,
)
from recordmill.transforms.sources.tfrecord.frames import (
    STEP_BYTES,
    WHOLE_BYTES,
    WINDOW_BYTES,
    FrameWindow,
    ReferencedFrames,
    cut_files,
    look_at,
    make_references,
    open_range,
    read_frames,
    rows_of,
    without_frames,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.free_memory import available_memory
from recordmill.transforms.storage.reading import is_local
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

# mnist-train.tfrecord-00000-of-00001, train-00000-of-01024, part-3.tfrecords.gz
_NAMED = re.compile(r"\.(tfrecords?|tfrec|tfr)\b|-\d{5,}-of-\d{5,}$", re.IGNORECASE)
_BESIDE = re.compile(
    r"\.(json|txt|pbtxt|md|html?|ya?ml|csv|tsv|tfindex|tfrecord\.index|idx|index|"
    r"array_record\S*)$|^_SUCCESS$|^LICENSE",
    re.IGNORECASE,
)
_ARRAY_RECORD = re.compile(r"\.array_?record[^/]*$", re.IGNORECASE)
_WORDS = "train(?:ing)?|val(?:id(?:ation)?)?|dev|eval(?:uation)?|test(?:ing)?"
_IN_NAME = re.compile(rf"(?:^|[-_.])({_WORDS})(?=[-_.]|\d|$)", re.IGNORECASE)
_FOLDER = re.compile(rf"(?:{_WORDS})", re.IGNORECASE)


class _DataFiles(NamedTuple):
    """The files that hold records.

    Attributes:
      files: them, in the order of the input.
      compressions: how many there are of each compression, as far as they were looked at.
      all_plain: whether all were looked at, and none is compressed.
      skipped: the others.
    """

    files: tuple[InputFile, ...]
    compressions: tuple[tuple[str, int], ...]
    all_plain: bool
    skipped: tuple[SkippedFiles, ...]


def _find_data(files: Sequence[InputFile], storage: StorageOptions) -> _DataFiles:
    """Finds the files that hold records, by their content, and in a store by name.

    A file with a TFRecord's name is one even if its first record is damaged. Files of a
    store are looked at only where their name tells nothing: each costs a request.
    """
    data: list[InputFile] = []
    others: list[tuple[str, str]] = []
    kinds: dict[str, int] = {}
    all_seen = True
    for file in files:
        name = PurePosixPath(file.path).name
        named = bool(_NAMED.search(name)) and not _BESIDE.search(name)
        if file.problem or (_BESIDE.search(name) and not named):
            others.append((file.problem or "no records by its name", file.path))
            continue
        if not file.size:
            others.append(("empty", file.path))
            continue
        if named and not is_local(file.uri):
            all_seen = False
            data.append(file)
            continue
        kind, fits = look_at(file.uri, storage, file.seen)
        if fits or named:
            kinds[kind] = kinds.get(kind, 0) + 1
            data.append(file)
        else:
            others.append(("no TFRecord at its start", file.path))
    arrays = [path for _, path in others if _ARRAY_RECORD.search(path)]
    if not data and arrays:
        raise InputError(
            f"no TFRecord file, but {count(len(arrays), 'ArrayRecord file')}, such as "
            f"{arrays[0]}, which are no input. Convert what they were made from once more, "
            "with `container=tfrecord`"
        )
    if not data:
        raise InputError(
            f"no TFRecord file among {count(len(files), 'input file')}: none begins "
            "with the length of a record and its checksum, as it is or unpacked from gzip "
            "or zlib" + (f" ({others[0][1]}: {others[0][0]})" if others else "")
        )
    return _DataFiles(
        tuple(data),
        tuple(sorted(kinds.items())),
        all_seen and kinds.keys() <= {"plain"},
        SkippedFiles.counted(others),
    )


def _split_by_file(
    files: Sequence[InputFile],
    manifests: Mapping[str, Manifest],
    infos: Mapping[str, bytes],
) -> dict[str, str]:
    """Returns the split of each file, by path; "" where nothing tells it."""
    named = {folder: _splits_of_info(info) for folder, info in infos.items()}
    stated = {
        f"{folder}/{shard.file}".lstrip("/"): split
        for folder, manifest in manifests.items()
        for split, entry in manifest.splits.items()
        for shard in entry.shards
    }
    found = {}
    for file in files:
        path = PurePosixPath(file.path)
        split = stated.get(file.path, "")
        split = split or _by_info(path.name, *named.get(folder_of(file.path), ("", ())))
        found[file.path] = split or _by_words(path)
    return found


def _splits_of_info(info: bytes) -> tuple[str, tuple[str, ...]]:
    """Returns the dataset's name and its splits, the longest first."""
    try:
        stated = json.loads(info)
        name = str(stated["name"])
        splits = [str(split["name"]) for split in stated["splits"]]
    except (ValueError, LookupError, TypeError):
        return "", ()
    return name, tuple(sorted(filter(SPLIT_PATTERN.fullmatch, splits), key=len))[::-1]


def _by_info(name: str, dataset: str, splits: Sequence[str]) -> str:
    for split in splits:
        if name.startswith((f"{dataset}-{split}.", f"{dataset}-{split}-")):
            return split
    return ""


def _by_words(path: PurePosixPath) -> str:
    match = _IN_NAME.search(path.name)
    if match is not None:
        return match[1]
    return path.parent.name if _FOLDER.fullmatch(path.parent.name) else ""


SAMPLE_BYTES = 16 << 20  # of all files
SAMPLE_RECORDS = 1_000
MOST_FILES = 8


def _read_sample(
    files: Sequence[InputFile], storage: StorageOptions
) -> list[SampledRecord]:
    """Returns the first records of files that are spread over the input."""
    chosen = files[:: -(-len(files) // MOST_FILES)]
    most = SAMPLE_RECORDS // len(chosen)
    share = SAMPLE_BYTES // len(chosen)
    sample: list[SampledRecord] = []
    for file in chosen:
        whole = InputRange(
            0, file.path, file.uri, 0, file.size, 0, file.size, seen=file.seen
        )
        opened = open_range(whole, storage)
        stop = None if opened.is_packed else file.size
        num_bytes, last = 0, len(sample) + most
        frames = (
            window.raw(row)
            for window in read_frames(opened, 0, stop, share)
            for row in range(len(window.starts))
        )
        for offset, raw in frames:
            data = raw[HEAD_BYTES:-TAIL_BYTES]
            sample.append(SampledRecord(file.uri, offset, data))
            num_bytes += len(data)
            if num_bytes >= share or len(sample) == last:
                break
    return sample


_INFO = "dataset_info.json"  # of TFDS


@dataclass(frozen=True, slots=True)
class _KnownInput:
    """What is known of the input once it was looked at.

    Attributes:
      files: those that hold records.
      splits: the split of each; "" where nothing tells it.
      all_plain: whether none is compressed.
      schema: of the records.
      payload: what they hold.
      record_bytes: of a record of the sample, on average.
      told: what the input was taken for.
      checksums: of the files beside the records that were read.
    """

    files: tuple[InputFile, ...] = ()
    splits: tuple[str, ...] = ()
    all_plain: bool = True
    schema: Schema = RAW
    payload: Payload = "example"
    record_bytes: int = 0
    told: InputSummary = NOTHING
    checksums: tuple[FileChecksum, ...] = ()

    def number_of(self, path: str) -> int:
        """Returns the number of a file."""
        return next(n for n, file in enumerate(self.files) if file.path == path)


def _know_input(
    files: Sequence[InputFile], wanted: Wanted, storage: StorageOptions
) -> _KnownInput:
    """Looks at the input: names, first bytes, files beside the records, a sample."""
    beside = BesideFiles(files, storage)
    manifests = beside.manifests()
    candidates, left_out = _named_by_manifests(files, manifests)
    data = _find_data(candidates, storage)
    splits = {file.path: "" for file in data.files}
    if wanted.use_splits:
        splits = _split_by_file(data.files, manifests, beside.named(_INFO))
    sample = _read_sample(data.files, storage)
    chosen = choose_features(data.files, sample, manifests, beside, wanted)
    sizes = [len(record.data) for record in sample]
    return _KnownInput(
        files=tuple(file._replace(given="") for file in data.files),
        splits=tuple(splits.values()),
        all_plain=data.all_plain,
        schema=chosen.schema,
        payload=chosen.payload,
        record_bytes=sum(sizes) // max(1, len(sizes)),
        told=_told(data, splits, chosen, wanted, left_out),
        checksums=tuple(beside.checksums.values()),
    )


def _named_by_manifests(
    files: Sequence[InputFile], manifests: Mapping[str, Manifest]
) -> tuple[list[InputFile], list[tuple[str, str]]]:
    """Separates what lies in a dataset's folder and is none of its shards."""
    there = {file.path for file in files}
    shards = set()
    for folder, manifest in manifests.items():
        for name in manifest.shard_files:
            path = f"{folder}/{name}" if folder else name
            shards.add(path)
            if path not in there:
                raise InputError(
                    f"{path}: is missing, but {MANIFEST_NAME} beside it names it. Copy "
                    "the dataset again, or give the files alone, without the folder"
                )
    kept, left_out = [], []
    for file in files:
        if folder_of(file.path) in manifests and file.path not in shards:
            left_out.append(("no shard of the dataset", file.path))
        else:
            kept.append(file)
    return kept, left_out


def _told(
    data: _DataFiles,
    splits: Mapping[str, str],
    chosen: ChosenFeatures,
    wanted: Wanted,
    left_out: list[tuple[str, str]],
) -> InputSummary:
    kept = "kept as they are, unread" if wanted.keeps else "decoded"
    facts = [("records", kept), ("features", chosen.basis)]
    packed = [f"{kind}: {count(n, 'file')}" for kind, n in data.compressions]
    if packed and not data.all_plain:
        facts.append(("compression", ", ".join(packed)))
    names = [name for name in dict.fromkeys(splits.values()) if name]
    if names:
        unnamed = sum(not split for split in splits.values())
        beside = f"; {count(unnamed, 'file')} in none" if unnamed else ""
        facts.append(("splits", f"by the names of files: {', '.join(names)}{beside}"))
    passed_over = (*data.skipped, *SkippedFiles.counted(left_out))
    return InputSummary(tuple(facts), chosen.warnings, passed_over)


MAX_REFERENCED_FILES = 10_000  # every worker knows all of them
REFERENCED_BYTES = 1_000  # of a record; to read a smaller one by itself takes longer
_UNPACKED = 8  # times as large as a compressed file, at most about
_SAMPLED_BYTES = 1 << 20


@dataclass(frozen=True)
class TfrecordSource(Source):
    """TFRecord files.

    Attributes:
      records: whether records are kept as they are, or decoded.
      split_from: whether names of files tell splits.
      declared: the schema of the job, or None.
      payload: what the job's records hold.
      whole_bytes, step_bytes: how files are cut (see cut_files).
      window_bytes: read at once.
      known: what is known of the input, once prepared.
      is_appended: whether the features are those of the dataset that is there.
      storage: options of the inputs' storage.
    """

    records: Records = "keep"
    split_from: SplitFrom = "auto"
    declared: DeclaredSchema | None = None
    payload: Payload = "example"
    whole_bytes: int = WHOLE_BYTES
    step_bytes: int = STEP_BYTES
    window_bytes: int = WINDOW_BYTES
    known: _KnownInput = _KnownInput()
    is_appended: bool = False
    storage: StorageOptions = NO_OPTIONS

    handles_unreadable = True  # those that are no data are passed over
    tells_checksums = True

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        """Tells whether records can be read again where they lie."""
        return (
            self.records == "keep"
            and self.known.all_plain
            and len(self.known.files) <= MAX_REFERENCED_FILES
            and all(
                is_local(file.uri) and member_of(file.seen.version) is None
                for file in self.known.files
            )
        )

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        schema = append.schema if append is not None else None
        wanted = Wanted(
            keeps=self.records == "keep",
            declared=self.declared,
            payload=self.payload,
            fixed_schema=schema,
            use_splits=self.split_from == "auto",
        )
        known = _know_input(files, wanted, self.storage)
        return replace(self, known=known, is_appended=schema is not None)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.known.checksums

    def understood(self) -> InputSummary:
        return self.known.told

    def own_splits(self) -> tuple[str, ...]:
        found = dict.fromkeys(self.known.splits)
        return () if "" in found else tuple(found)

    @cached_property
    def _decoded_types(self) -> pa.Schema:
        none = pa.array([], pa.binary())
        known = self.known
        return decode_payload(none, known.schema, known.payload).batch.schema

    def columns(self) -> pa.Schema:
        if self.records == "keep":
            return pa.schema([(FRAMED, pa.binary())])
        return self._decoded_types

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        schema = self.known.schema
        if self.is_appended or not nulls:
            return schema
        return Schema(
            tuple(
                replace(feature, optional=feature.optional or missing > 0)
                for feature, missing in zip(schema.features, nulls, strict=True)
            )
        )

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        known = self.known
        splits = dict(zip((f.path for f in known.files), known.splits, strict=True))
        data = [file for file in files if file.path in splits]
        cut = cut_files(
            data,
            self.storage,
            whole_bytes=self.whole_bytes,
            step_bytes=self.step_bytes,
        )
        return number_ranges(
            [(file, start, stop, splits[file.path]) for file, start, stop in cut]
        )

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Returns the first bytes of some ranges: only there a record's start is known."""
        chosen = ranges[:: -(-len(ranges) // 32)]
        return [
            replace(part, stop=min(part.stop, part.start + _SAMPLED_BYTES))
            for part in chosen
        ]

    def spill_inventory(self, store: Store, name: str) -> Self:
        known = self.known
        if self.supports_references:  # workers need the files, which are not too many
            return replace(self, known=replace(known, splits=(), told=NOTHING))
        without = replace(
            known, files=(), splits=(), told=NOTHING, checksums=(), all_plain=False
        )
        return replace(self, known=without)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        size = sum(file.size for file in files)
        return size if self.known.all_plain else _UNPACKED * size

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        if self.records == "decode":
            return self._read_decoded(input_range, sink)
        return self._read_kept(input_range, sink)

    def read_for_statistics(
        self, input_range: InputRange, sink: RowSink
    ) -> Iterator[Rows]:
        return self._read_decoded(input_range, sink)

    def _windows(
        self, input_range: InputRange, sink: RowSink
    ) -> Iterator[tuple[FrameWindow, Rows]]:
        """Yields windows, and their rows, whose batch is to be set."""
        file = open_range(input_range, self.storage)
        stop = None if file.is_packed else input_range.stop
        before = file.consumed
        for window in read_frames(file, input_range.start, stop, self.window_bytes):
            yield window, rows_of(window, input_range, file, before, sink)
            before = file.consumed
        part = input_range.path, input_range.start, input_range.stop
        sink.checksums.append(FileChecksum(*part, file.drain()))

    def _read_kept(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        for window, rows in self._windows(input_range, sink):
            rows.batch = pa.record_batch([window.records()], [FRAMED])
            yield rows

    def _read_decoded(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        known = self.known
        unknown: Unknown = "error" if self.declared is None else "ignore"
        sink.add(nulls=(0,) * len(self._decoded_types))
        before = len(sink.rejects)
        for window, rows in self._windows(input_range, sink):
            records = without_frames(window)
            decoded = decode_payload(
                records, known.schema, known.payload, unknown=unknown
            )
            reasons = dict(decoded.row_errors)
            if self.is_appended:
                reasons = missing_required(decoded.batch, known.schema) | reasons
            rows.batch = decoded.batch
            rows = sink.reject(rows, reasons, input_range)
            sink.rejects[before:] = sorted(
                sink.rejects[before:], key=lambda reject: reject.position
            )
            sink.add(nulls=[column.null_count for column in rows.batch.columns])
            yield rows
            before = len(sink.rejects)  # the caller may have added its own

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Tells whether the page cache can hold the input, and records are not tiny."""
        known = self.known
        return (
            self.supports_references
            and known.record_bytes >= REFERENCED_BYTES
            and sum(file.seen.size for file in known.files) <= available_memory() // 2
        )

    def list_references(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        """Lists where each record lies; reads the range to check them."""
        number = self.known.number_of(input_range.path)
        for window, rows in self._windows(input_range, sink):
            references = make_references(number, window.offsets, window.lengths)
            rows.batch = pa.record_batch([references], [REFERENCE])
            rows.planned_bytes = window.lengths
            yield rows

    def read_references(
        self, references: pa.BinaryArray, sink: RowSink
    ) -> ReferencedRows:
        found = ReferencedFrames(references, self.known.files)
        batch = pa.record_batch([found.records], [FRAMED])
        kept = np.arange(len(references), dtype=np.int64)
        return ReferencedRows(batch, kept, found.raw)


def make_source(options: TfrecordOptions, request: Request) -> TfrecordSource:
    """Makes the source of TFRecord files.

    Raises:
      UsageError: the job asks for columns of records that are kept unread.
    """
    job = request.job
    source = TfrecordSource(
        options.records, options.split_from, storage=request.storage
    )
    if job is None:
        return source
    roles = ("label", "split_column", "split_by", "split_by_time", "stratify_by")
    for option in roles if options.records == "keep" else ():
        if (column := getattr(job, option)) is not None:
            raise UsageError(
                f"`{option}` {column}: the records are kept as they are, unread: use "
                "`records=decode`"
            )
    if options.records == "keep" and job.map is not None:
        raise UsageError(
            f"`map` {job.map.label}: the records are kept as they are, unread, so "
            "there are no columns: use `records=decode`"
        )
    declared = job.declared if request.as_text else None
    return replace(source, declared=declared, payload=job.payload)
