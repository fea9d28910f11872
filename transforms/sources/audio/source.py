"""Reads folders of audio files: each file is a record.

The source finds, labels and reads audio files like image files. Samples differ in size
from their file, so the plan counts their bytes, and they are not exchanged by reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.ranges import RowIssue, TypeFlags
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.audio.header import AudioHeaderError, read_audio_header
from recordmill.transforms.audio.samples import (
    SAMPLE_BYTES,
    decode_samples,
    decoder_clause,
    require_soundfile,
)
from recordmill.transforms.sources.audio.options import DEFAULT_OPTIONS, AudioOptions
from recordmill.transforms.sources.base import Append, InputFindings, RangeFindings
from recordmill.transforms.sources.images.source import (
    FilesSource,
    PreparedFile,
    PreparedFiles,
    ReadFile,
    file_schema,
)
from recordmill.transforms.storage.reading import read_file

_MAX_INSPECTED_FILES = 20  # files that are tried to find the number of channels
# bytes of stored samples per byte of an MP3 file; few files exceed it
_MAX_SAMPLE_GROWTH = 32
_COUNTED_PROPERTIES = (
    "sample rates",
    "channels",
)  # names of facts, and codes of their issues


@dataclass(frozen=True)
class AudioSource(FilesSource):
    """A source of audio files, with one record per file and one folder per class."""

    options: AudioOptions = DEFAULT_OPTIONS
    # channels of each file if samples are stored, after `prepare`
    num_channels: int = 0

    content_error = AudioHeaderError

    @property
    def keeps_bytes(self) -> bool:
        return self.options.audio == "encoded"

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        source = super().prepare(files, append)
        if self.options.check_audio == "decode":
            require_soundfile()
        if self.keeps_bytes:
            return source
        if append is not None and append.schema is not None:
            shape = append.schema["audio"].shape
            return replace(source, num_channels=(*shape, 1)[1] or 1)
        return replace(
            source, num_channels=self.options.channels or source._find_channels()
        )

    def _find_channels(self) -> int:
        """Returns the number of channels of the first readable file."""
        problem = "no file can be read"
        for file in self.annotations.images[:_MAX_INSPECTED_FILES]:
            if file.problem:
                continue
            try:
                content = read_file(file.uri, self.storage, file.stat)
                return read_audio_header(content).channels
            except AudioHeaderError as error:
                problem = f"{file.uri}: {error}"
        raise InputError(
            f"{problem}; no earlier file can be read either, so the number of channels "
            "is unknown: set `channels`, or leave out these files"
        )

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        audio = FeatureSpec("audio", Kind.BYTES, dtype="bytes")
        if not self.keeps_bytes:
            shape = (None, self.num_channels) if self.num_channels > 1 else (None,)
            audio = FeatureSpec("audio", Kind.INT64, dtype="int16", shape=shape)
        return file_schema(self.options.column_names, self.annotations, audio)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return super().estimated_bytes(files) * (
            1 if self.keeps_bytes else _MAX_SAMPLE_GROWTH
        )

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        if input_findings is None:
            input_report = super().input_report()
            if self.keeps_bytes or not input_report.fields:
                return input_report
            samples = (
                f"int16, {format_count(self.num_channels, 'channel')}{decoder_clause()}"
            )
            return replace(
                input_report, fields=(*input_report.fields, ("samples", samples))
            )
        counts = defaultdict[str, list[str]](list)
        for issue in sorted(input_findings.issues, key=lambda issue: -issue.count):
            counts[issue.code].append(f"{issue.column} ({issue.count:,})")
        facts = (
            (code, format_names(counts[code]))
            for code in _COUNTED_PROPERTIES
            if code in counts
        )
        return InputReport(tuple(facts))

    def _prepare_file(
        self, data: bytes, values: Sequence[Any], partners: Sequence[ReadFile]
    ) -> PreparedFile:
        header = read_audio_header(data)
        if self.num_channels and header.channels != self.num_channels:
            raise AudioHeaderError(
                f"has {header.channels} channels, expected {self.num_channels}, as in "
                "`channels` or the first file: convert files with other channels "
                "separately"
            )
        if self.options.check_audio == "decode" or not self.keeps_bytes:
            samples = decode_samples(data, header)
            data = data if self.keeps_bytes else samples
        notes = f"{header.sample_rate:,} Hz", str(header.channels)
        return PreparedFile(data, header, notes)

    def _build_batch(
        self, taken_files: PreparedFiles, range_findings: RangeFindings
    ) -> pa.RecordBatch:
        notes = zip(*taken_files.notes, strict=True)
        for code, values in zip(_COUNTED_PROPERTIES, notes, strict=False):
            counts = Counter(values).items()
            range_findings.add_batch_findings(
                issues=[RowIssue(code, value, n, "") for value, n in counts]
            )
        contents = taken_files.contents
        if not self.keeps_bytes:
            offsets, sample_bytes = array_parts(contents)
            samples = pa.array(sample_bytes[offsets[0] : offsets[-1]].view("<i2"))
            starts = (offsets - offsets[0]) // SAMPLE_BYTES
            contents = pa.LargeListArray.from_arrays(starts, samples)
        numbers = {
            name: pa.array(
                [getattr(header, name) for header in taken_files.headers], pa.int64()
            )
            for name in ("sample_rate", "channels", "frames")
        }
        names = pa.array(taken_files.paths, pa.string())
        columns = {"audio": contents, **numbers, "filename": names}
        return pa.RecordBatch.from_pydict(
            {**columns, **self.annotations.build_columns(taken_files.values)}
        )
