"""Summarizes rows of a pipeline in small values that pass through the runner."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RejectLimitError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import SortedRunRef
from recordmill.transforms.arrow import U64, array_parts
from recordmill.transforms.decode.examples import ObservedFeatures
from recordmill.transforms.exchange.plan import (
    BUCKETS_PER_SHARD,
    MAX_BUCKET_BITS,
    MIN_BUCKET_BITS,
    Histogram,
    PackedHistogram,
)
from recordmill.transforms.tasks.fingerprint import FORMAT_VERSION, fixed_fields
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

Digest = tuple[int, int]
"""Sums of two 64-bit hashes of each row, modulo 2**64: independent of the order."""

_MAX_BUCKETS = 1 << 22  # of all splits together


@dataclass(frozen=True, slots=True)
class RowsSummary:
    """A summary of some rows.

    Attributes:
      rows_read: number of rows, rejects included.
      rows_rejected: number of rejects.
      digest: of all rows.
      histogram: planned bytes and records of the rows that became records, or b"".
      observed: features of examples without a schema.
      runs: sorted runs that hold the records, with the scratch exchange.
      reject: one of the rejects, as a line of JSON, or b"".
    """

    rows_read: int = 0
    rows_rejected: int = 0
    digest: Digest = (0, 0)
    histogram: PackedHistogram = b""
    observed: ObservedFeatures = field(default_factory=ObservedFeatures)
    runs: tuple[SortedRunRef, ...] = ()
    reject: bytes = b""


@dataclass(slots=True)
class RowsTotals:
    """The sum of all summaries."""

    histogram: Histogram
    rows_read: int = 0
    rows_rejected: int = 0
    digest: Digest = (0, 0)
    observed: ObservedFeatures = field(default_factory=ObservedFeatures)
    reject: bytes = b""

    def add(self, summary: RowsSummary) -> None:
        self.rows_read += summary.rows_read
        self.rows_rejected += summary.rows_rejected
        self.digest = add_digests(self.digest, summary.digest)
        self.observed.add(summary.observed)
        if summary.reject:  # the same one in every order
            self.reject = min(self.reject or summary.reject, summary.reject)
        if summary.histogram:
            self.histogram.add_bytes(summary.histogram)

    def merge(self, other: RowsTotals) -> None:
        self.add(
            RowsSummary(
                other.rows_read,
                other.rows_rejected,
                other.digest,
                observed=other.observed,
                reject=other.reject,
            )
        )
        self.histogram += other.histogram


def rows_bucket_bits(job: JobSpec) -> int:
    """Chooses the bits of a histogram bucket when the size of all rows is unknown."""
    wanted = MAX_BUCKET_BITS
    if job.sharding.num_shards is not None:
        wanted = (job.sharding.num_shards * BUCKETS_PER_SHARD - 1).bit_length()
    room = (_MAX_BUCKETS // len(job.splits)).bit_length() - 1
    return max(MIN_BUCKET_BITS, min(MAX_BUCKET_BITS, wanted, room))


def add_digests(one: Digest, other: Digest) -> Digest:
    return (one[0] + other[0]) % (1 << 64), (one[1] + other[1]) % (1 << 64)


def content_hashes(framed: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """Returns two 64-bit hashes of each record's bytes, shape (rows, 2).

    They are the first 16 bytes of its SHA-256, little-endian, on every machine.
    """
    offsets, buffer = array_parts(framed)
    starts = (offsets[:-1] + HEAD_BYTES).tolist()
    ends = (offsets[1:] - TAIL_BYTES).tolist()
    # A Python call per record, 1 us each: no library hashes a batch.
    datas = map(buffer.data.__getitem__, map(slice, starts, ends))
    digests = b"".join([sha256(data).digest() for data in datas])
    words = np.frombuffer(digests, "<u8").reshape(-1, 4)[:, :2]
    return words.astype(np.uint64)


def text_digest(text: bytes) -> Digest:
    """Returns the two hashes of one reject."""
    first, second = np.frombuffer(sha256(text).digest(), "<u8", 2).tolist()
    return first, second


def sum_hashes(hashes: U64) -> Digest:
    """Returns the digest of records with these hashes, shape (rows, 2)."""
    first, second = hashes.sum(axis=0, dtype=np.uint64).tolist()
    return first, second


def rows_fingerprint(job: JobSpec, totals: RowsTotals) -> str:
    """Hashes all that fixes the bytes of a dataset: format version, job and all rows.

    The reject limit changes no byte (see recordmill.transforms.tasks.context).
    """
    digest = blake2b(digest_size=16)
    digest.update(f"recordmill {FORMAT_VERSION}\n".encode())
    digest.update(json.dumps(fixed_fields(job), sort_keys=True).encode())
    content = (totals.rows_read, totals.rows_rejected, *totals.digest)
    digest.update(f"\nrows {content}".encode())
    return digest.hexdigest()


_SHOWN_BYTES = 300

RejectLine = tuple[Digest, bytes]
"""A reject as a line of JSON, and its digest."""


def reject_limit_error(rows: str, limit: str, line: bytes) -> RejectLimitError:
    """Makes the error of too many rejects, which shows one of them."""
    reject = json.loads(line)
    raw = base64.b64decode(reject["raw"])
    shown = raw[:_SHOWN_BYTES].decode(errors="backslashreplace")
    more = "..." if len(raw) > _SHOWN_BYTES else ""
    return RejectLimitError(
        f"{rows} rejected (limit {limit}). One of them: {reject['reason']}: "
        f"{shown}{more}\nFix the rows or raise max_rejects"
    )


def summarize_rejects(rejects: Sequence[RejectLine]) -> RowsSummary:
    """Summarizes rows that were rejected."""
    digest = (0, 0)
    for own, _ in rejects:
        digest = add_digests(digest, own)
    shown = min((line for _, line in rejects), default=b"")
    return RowsSummary(len(rejects), len(rejects), digest, reject=shown)
