"""Reads some records of TFRecord files, before a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile, InputRange
from recordmill.transforms.sources.tfrecord.file_bytes import open_range
from recordmill.transforms.sources.tfrecord.read_frames import FrameWindow, read_frames
from recordmill.transforms.sources.tfrecord.sample_features import SampledRecord
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

SAMPLE_BYTES = 16 << 20  # of all files
SAMPLE_RECORDS = 1_000
MOST_FILES = 8


def read_sample(
    files: Sequence[InputFile], storage: StorageOptions
) -> list[SampledRecord]:
    """Returns the first records of files that are spread over the input."""
    chosen = files[:: -(-len(files) // MOST_FILES)]
    most = SAMPLE_RECORDS // len(chosen)
    share = SAMPLE_BYTES // len(chosen)
    sample = []
    for file in chosen:
        num_bytes = 0
        for record in islice(_records(file, share, storage), most):
            sample.append(record)
            num_bytes += len(record.data)
            if num_bytes >= share:
                break
    return sample


def _records(
    file: InputFile, window_bytes: int, storage: StorageOptions
) -> Iterator[SampledRecord]:
    for window in first_windows(file, window_bytes, storage):
        for row in range(len(window.starts)):
            offset, raw = window.raw(row)
            yield SampledRecord(file.uri, offset, raw[HEAD_BYTES:-TAIL_BYTES])


def first_windows(
    file: InputFile, window_bytes: int, storage: StorageOptions
) -> Iterator[FrameWindow]:
    """Reads a file from its start, as far as it is asked for."""
    whole = InputRange(
        0, file.path, file.uri, 0, file.size, 0, file.size, seen=file.seen
    )
    opened = open_range(whole, storage)
    stop = None if opened.is_packed else file.size
    return read_frames(opened, 0, stop, window_bytes)
