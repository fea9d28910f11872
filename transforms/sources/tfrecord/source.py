"""Reads TFRecord files: keeps their records byte for byte, or decodes them to columns.

Kept records are not parsed: their frames are checked and written unchanged. Their
features come from metadata files next to them or from a schema, or are inferred from a
sample. The split of a file comes from such metadata files, or from its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.declared import DeclaredSchema
from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile, parse_member
from recordmill.schemas.input_summary import EMPTY_REPORT, InputReport, SkippedFiles
from recordmill.schemas.input_text import as_input_error, parse_json
from recordmill.schemas.job import SPLIT_PATTERN
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.options import Payload
from recordmill.schemas.ranges import InputRange, Reject, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.decode.examples import Unknown
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.machine import available_memory
from recordmill.transforms.sources.base import (
    FRAMED,
    REFERENCE,
    Append,
    InputFindings,
    RangeFindings,
    ReferencedRows,
    Rows,
    Source,
    missing_required,
    number_ranges,
)
from recordmill.transforms.sources.file_splits import AUTO, FileSplits, split_word
from recordmill.transforms.sources.registry import (
    Records,
    SourceRequest,
    TfrecordOptions,
)
from recordmill.transforms.sources.tfrecord.features import (
    RAW_SCHEMA,
    MetadataFiles,
    SampledRecord,
    determine_features,
    folder_of,
)
from recordmill.transforms.sources.tfrecord.frames import (
    STEP_BYTES,
    WHOLE_BYTES,
    create_references,
    cut_files,
    detect_compression,
    open_range,
    read_references,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.reading import is_local
from recordmill.transforms.tfrecord import (
    HEAD_BYTES,
    TAIL_BYTES,
    WINDOW_BYTES,
    FrameWindow,
    read_frames,
)

# mnist-train.tfrecord-00000-of-00001, train-00000-of-01024, part-3.tfrecords.gz
_DATA_NAME = re.compile(r"\.(tfrecords?|tfrec|tfr)\b|-\d{5,}-of-\d{5,}$", re.IGNORECASE)
_METADATA_NAME = re.compile(
    r"\.(json|txt|pbtxt|md|html?|ya?ml|csv|tsv|tfindex|tfrecord\.index|idx|index|"
    r"array_record\S*)$|^_SUCCESS$|^LICENSE",
    re.IGNORECASE,
)
_ARRAY_RECORD = re.compile(r"\.array_?record[^/]*$", re.IGNORECASE)


SAMPLE_BYTES = 16 << 20  # maximum size of the sample of all files
SAMPLE_RECORDS = 1_000
MAX_SAMPLED_FILES = 8
_INFO_NAME = "dataset_info.json"  # metadata file of TFDS


@dataclass(frozen=True, slots=True)
class _PreparedInput:
    """The files, splits and features of an input, after `prepare`."""

    files: tuple[InputFile, ...] = ()  # files with records
    splits: tuple[str, ...] = ()  # split of each file; "" if it is not stated
    all_plain: bool = True  # whether no file is compressed
    schema: Schema = RAW_SCHEMA  # schema of the records
    payload: Payload = "example"  # payload of the records
    record_bytes: int = 0  # average size of a record of the sample
    input_report: InputReport = EMPTY_REPORT  # the input report
    # checksums of the metadata files that were read
    checksums: tuple[FileChecksum, ...] = ()


def _find_record_files(
    files: Sequence[InputFile], storage: StorageOptions, skipped: list[tuple[str, str]]
) -> tuple[list[InputFile], Counter[str]]:
    """Finds the files with records: by content, and remote files first by name."""
    record_files: list[InputFile] = []
    other_files: list[tuple[str, str]] = []
    kinds: Counter[str] = Counter()
    for file in files:
        name = PurePosixPath(file.path).name
        has_metadata_name = bool(_METADATA_NAME.search(name))
        has_data_name = bool(_DATA_NAME.search(name)) and not has_metadata_name
        reason = file.problem or (
            "not a TFRecord file, by its name" if has_metadata_name else ""
        )
        kind = ""
        if not reason and not file.size:
            reason = "empty"
        # Reading a remote file costs a request: only if its name is unclear.
        elif not reason and (not has_data_name or is_local(file.uri)):
            kind, fits = detect_compression(file.uri, storage, file.stat)
            reason = (
                "" if fits or has_data_name else "not a TFRecord file, by its content"
            )
        if reason:
            other_files.append((reason, file.path))
        else:
            kinds[kind] += 1
            record_files.append(file)
    skipped[:0] = other_files
    if record_files:
        return record_files, kinds
    arrays = [path for _, path in other_files if _ARRAY_RECORD.search(path)]
    if arrays:
        raise InputError(
            f"no TFRecord file, but {format_count(len(arrays), 'ArrayRecord file')}, such as "
            f"{arrays[0]}, which cannot be inputs. Convert their original inputs "
            "again, with `container=tfrecord`"
        )
    raise InputError(
        f"no TFRecord file among {format_count(len(files), 'input file')}: none starts with "
        "the length of a record and its checksum, uncompressed or compressed with gzip "
        "or zlib"
        + (f" ({other_files[0][1]}: {other_files[0][0]})" if other_files else "")
    )


def _find_file_splits(
    files: Sequence[InputFile],
    manifests: Mapping[str, Manifest],
    info_contents: Mapping[str, bytes],
) -> list[str]:
    """Returns the split of each file by metadata files or its name; "" if unknown."""
    splits_by_folder = {
        folder: _parse_info(info_content)
        for folder, info_content in info_contents.items()
    }
    stated_splits = {
        f"{folder}/{shard.file}".lstrip("/"): split
        for folder, manifest in manifests.items()
        for split, split_entry in manifest.splits.items()
        for shard in split_entry.shards
    }
    split_names = []
    for file in files:
        name = PurePosixPath(file.path).name
        dataset, splits = splits_by_folder.get(folder_of(file.path), ("", ()))
        of_info = (
            split
            for split in splits
            if name.startswith((f"{dataset}-{split}.", f"{dataset}-{split}-"))
        )
        split_names.append(
            stated_splits.get(file.path) or next(of_info, split_word(name))
        )
    return split_names


def _parse_info(info_content: bytes) -> tuple[str, tuple[str, ...]]:
    """Parses dataset_info.json; returns the dataset name, and splits, longest first."""
    try:
        dataset_info = parse_json(info_content, _INFO_NAME)
        with as_input_error(_INFO_NAME, "name and splits, each with its name"):
            name = str(dataset_info["name"])
            splits = [str(split["name"]) for split in dataset_info["splits"]]
    except InputError:  # the file names may still state the splits
        return "", ()
    return name, tuple(sorted(filter(SPLIT_PATTERN.fullmatch, splits), key=len))[::-1]


def _read_sample(
    files: Sequence[InputFile], storage: StorageOptions
) -> list[SampledRecord]:
    sampled_files = files[:: -(-len(files) // MAX_SAMPLED_FILES)]
    max_records, max_bytes = (
        SAMPLE_RECORDS // len(sampled_files),
        SAMPLE_BYTES // len(sampled_files),
    )
    sample: list[SampledRecord] = []
    for file in sampled_files:
        (whole,) = number_ranges([(file, 0, file.size, "")])
        stream, remaining_bytes = open_range(whole, storage), max_bytes
        stop = None if stream.is_packed else file.size
        frames = (
            window.raw(row)
            for window in read_frames(stream.part, 0, stop, max_bytes)
            for row in range(len(window.starts))
        )
        for offset, raw in islice(frames, max_records):
            sample.append(SampledRecord(file.uri, offset, raw[HEAD_BYTES:-TAIL_BYTES]))
            remaining_bytes -= len(sample[-1].data)
            if remaining_bytes <= 0:
                break
    return sample


def _select_shards(
    files: Sequence[InputFile],
    manifests: Mapping[str, Manifest],
    skipped: list[tuple[str, str]],
) -> list[InputFile]:
    """Returns the files, without other files than shards in the folder of a dataset.

    Raises:
      InputError: a shard of a dataset is missing.
    """
    shards = {
        f"{folder}/{name}".lstrip("/")
        for folder, manifest in manifests.items()
        for name in manifest.shard_files
    }
    for path in sorted(shards - {file.path for file in files}):
        raise InputError(
            f"{path}: is missing, but {MANIFEST_NAME} next to it names it. Copy the "
            "dataset again, or use only the files, not the folder, as inputs"
        )
    kept_files = []
    for file in files:
        if folder_of(file.path) in manifests and file.path not in shards:
            skipped.append(("not a shard of the dataset", file.path))
        else:
            kept_files.append(file)
    return kept_files


_NO_BATCH = pa.record_batch([pa.array([], pa.binary())], [""])
MAX_REFERENCED_FILES = 10_000  # every worker holds the list of all files
# minimum record size; single reads of smaller records are slow
REFERENCED_BYTES = 1_000
_MAX_COMPRESSION_RATIO = 8  # usual maximum ratio of unpacked to compressed size
_SAMPLED_BYTES = 1 << 20


@dataclass(frozen=True)
class TfrecordSource(Source):
    """A source of TFRecord files."""

    records: Records = "keep"  # whether records are kept unchanged or decoded
    splits: FileSplits = FileSplits(AUTO)  # noqa: RUF009 (a frozen value)
    declared: DeclaredSchema | None = None  # the schema of the job
    payload: Payload = "example"  # payload of the records, by the job
    whole_bytes: int = WHOLE_BYTES  # maximum size of an uncut file (see cut_files)
    step_bytes: int = STEP_BYTES
    window_bytes: int = WINDOW_BYTES  # read at once
    prepared_input: _PreparedInput = (
        _PreparedInput()
    )  # properties of the input, after `prepare`
    is_appended: bool = False  # whether the features come from an existing dataset
    storage: StorageOptions = NO_OPTIONS  # options of the storage of the inputs

    handles_unreadable = True  # `prepare` skips unreadable files
    reports_checksums = True

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        """Returns whether records can be read again at their place in the input."""
        return (
            self.records == "keep"
            and self.prepared_input.all_plain
            and len(self.prepared_input.files) <= MAX_REFERENCED_FILES
            and all(
                is_local(file.uri) and parse_member(file.stat.version) is None
                for file in self.prepared_input.files
            )
        )

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        schema = append.schema if append is not None else None
        metadata_files = MetadataFiles(files, self.storage)
        manifests = metadata_files.read_manifests()
        skipped: list[tuple[str, str]] = []
        files = _select_shards(files, manifests, skipped)
        record_files, kinds = _find_record_files(files, self.storage, skipped)
        named_splits = _find_file_splits(
            record_files, manifests, metadata_files.read_named(_INFO_NAME)
        )
        rule = self.splits.find_rule(record_files, name_splits=named_splits)
        splits = list(map(rule.split_of, record_files, named_splits))
        sample = _read_sample(record_files, self.storage)
        chosen_features = determine_features(
            record_files,
            sample,
            manifests,
            metadata_files,
            keeps=self.records == "keep",
            declared=self.declared,
            payload=self.payload,
            fixed_schema=schema,
        )
        records_fact = (
            "kept unchanged, not decoded" if self.records == "keep" else "decoded"
        )
        facts = [("records", records_fact), ("features", chosen_features.origin)]
        packed = [
            f"{k}: {format_count(n, 'file')}" for k, n in sorted(kinds.items()) if k
        ]
        if packed and kinds.keys() != {"plain"}:
            facts.append(("compression", ", ".join(packed)))
        all_facts = (*facts, *rule.report_lines)
        known_input = _PreparedInput(
            files=tuple(file._replace(given_folder="") for file in record_files),
            splits=tuple(splits),
            all_plain=kinds.keys() <= {"plain"},
            schema=chosen_features.schema,
            payload=chosen_features.payload,
            record_bytes=sum(len(record.data) for record in sample)
            // max(1, len(sample)),
            input_report=InputReport(
                all_facts,
                chosen_features.warnings,
                SkippedFiles.count_by_reason(skipped),
            ),
            checksums=tuple(metadata_files.checksums.values()),
        )
        fixed = schema is not None
        return replace(self, splits=rule, prepared_input=known_input, is_appended=fixed)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.prepared_input.checksums

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        return self.prepared_input.input_report

    @cached_property
    def _decoded_types(self) -> pa.Schema:
        none = pa.array([], pa.binary())
        known_input = self.prepared_input
        return decode_payload(
            none, known_input.schema, known_input.payload
        ).batch.schema

    def columns(self) -> pa.Schema:
        if self.records == "keep":
            return pa.schema([(FRAMED, pa.binary())])
        return self._decoded_types

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        schema = self.prepared_input.schema
        if self.is_appended or not nulls:
            return schema
        return Schema(
            tuple(
                replace(feature, optional=feature.optional or missing > 0)
                for feature, missing in zip(schema.features, nulls, strict=True)
            )
        )

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        known_input = self.prepared_input
        splits = dict(
            zip((f.path for f in known_input.files), known_input.splits, strict=True)
        )
        record_files = [file for file in files if file.path in splits]
        return number_ranges(
            [
                (file, start, stop, splits[file.path])
                for file, start, stop in cut_files(
                    record_files, self.storage, self.whole_bytes, self.step_bytes
                )
            ]
        )

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Returns the first bytes of some ranges, where a record is known to start."""
        chosen = ranges[:: -(-len(ranges) // 32)]
        return [
            replace(part, stop=min(part.stop, part.start + _SAMPLED_BYTES))
            for part in chosen
        ]

    def spill_inventory(self, store: Store, name: str) -> Self:
        known_input = self.prepared_input
        if self.supports_references:  # workers need the files, whose number is limited
            return replace(
                self,
                prepared_input=replace(
                    known_input, splits=(), input_report=EMPTY_REPORT
                ),
            )
        spilled_input = replace(
            known_input,
            files=(),
            splits=(),
            input_report=EMPTY_REPORT,
            checksums=(),
            all_plain=False,
        )
        return replace(self, prepared_input=spilled_input)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        size = sum(file.size for file in files)
        return size if self.prepared_input.all_plain else _MAX_COMPRESSION_RATIO * size

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        if self.records == "decode":
            yield from self._read_decoded(input_range, range_findings)
            return
        for window, rows in self._read_windows(input_range, range_findings):
            rows.batch = pa.record_batch([window.frames()], [FRAMED])
            yield rows

    def read_for_statistics(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        return self._read_decoded(input_range, range_findings)

    def _read_windows(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[tuple[FrameWindow, Rows]]:
        """Yields windows, and their rows, whose batch the caller must set.

        The origin of a record is its file and its offset there, however the file is cut.
        """
        file, path = open_range(input_range, self.storage), input_range.path
        stop = None if file.is_packed else input_range.stop
        consumed_before = file.packed_bytes_read
        for window in read_frames(
            *(file.part, input_range.start, stop, self.window_bytes), is_cut=file.is_cut
        ):
            positions = window.offsets - input_range.start
            if file.is_packed:  # approximate positions in the compressed file
                span, rows = file.packed_bytes_read - consumed_before, len(positions)
                positions = consumed_before + np.arange(rows) * span // max(1, rows)
                positions = np.minimum(positions, max(0, file.packed_bytes_read - 1))
            range_findings.rejects += [Reject(path, *lost) for lost in window.lost]
            yield (
                window,
                Rows(
                    batch=_NO_BATCH,
                    origins=origins_in(path, 0, window.offsets),
                    positions=positions,
                    raw_row=window.raw,
                ),
            )
            consumed_before = file.packed_bytes_read
        part = path, input_range.start, input_range.stop
        range_findings.checksums.append(FileChecksum(*part, file.checksum_of_part()))

    def _read_decoded(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        known_input = self.prepared_input
        unknown: Unknown = "error" if self.declared is None else "ignore"
        range_findings.add_batch_findings(nulls=(0,) * len(self._decoded_types))
        num_rejects_before = len(range_findings.rejects)
        for window, rows in self._read_windows(input_range, range_findings):
            decoded = decode_payload(
                window.records(),
                known_input.schema,
                known_input.payload,
                unknown=unknown,
            )
            reasons = dict(decoded.row_errors)
            if self.is_appended:
                reasons = missing_required(decoded.batch, known_input.schema) | reasons
            rows.batch = decoded.batch
            rows = range_findings.reject_rows(rows, reasons, input_range)
            range_findings.rejects[num_rejects_before:] = sorted(
                range_findings.rejects[num_rejects_before:],
                key=lambda reject: reject.position,
            )
            range_findings.add_batch_findings(
                nulls=[column.null_count for column in rows.batch.columns]
            )
            yield rows
            num_rejects_before = len(
                range_findings.rejects
            )  # the caller may have added its own

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Returns whether the page cache can hold the input and records are not tiny."""
        known_input = self.prepared_input
        return (
            self.supports_references
            and known_input.record_bytes >= REFERENCED_BYTES
            and sum(file.stat.size for file in known_input.files)
            <= available_memory() // 2
        )

    def list_references(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Yields references to the records of a range, and checks the records."""
        paths = [file.path for file in self.prepared_input.files]
        number = paths.index(input_range.path)
        for window, rows in self._read_windows(input_range, range_findings):
            references = create_references(number, window.offsets, window.lengths)
            rows.batch = pa.record_batch([references], [REFERENCE])
            rows.planned_bytes = window.lengths
            yield rows

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], range_findings: RangeFindings
    ) -> Iterator[ReferencedRows]:
        return (
            read_references(window, self.prepared_input.files) for window in windows
        )


def make_source(options: TfrecordOptions, request: SourceRequest) -> TfrecordSource:
    """Creates the source of TFRecord files.

    Raises:
      UsageError: the job uses columns of records that are kept unread.
    """
    job = request.job
    splits = request.file_splits(options.split_from)
    source = TfrecordSource(options.records, splits, storage=request.storage)
    if job is None:
        return source
    roles = ("label", "split_column", "split_by", "split_by_time", "stratify_by")
    requested_options = {option: getattr(job, option) for option in roles}
    requested_options["map"] = job.map and job.map.label
    requested_options["balance"] = job.balance
    for option, setting in (
        requested_options.items() if options.records == "keep" else ()
    ):
        if setting is not None:
            raise UsageError(
                f"`{option}` {setting}: the records are kept unchanged and are not "
                "decoded, so there are no columns: use `records=decode`"
            )
    declared = job.declared if request.as_text else None
    return replace(source, declared=declared, payload=job.payload)
