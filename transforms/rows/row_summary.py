"""What rows of a pipeline add up to: small facts that cross the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b, sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.ranges import SortedRunRef
from recordmill.transforms.arrow import U64, array_parts
from recordmill.transforms.exchange.plan import (
    BUCKETS_PER_SHARD,
    MAX_BUCKET_BITS,
    MIN_BUCKET_BITS,
    Histogram,
    PackedHistogram,
)
from recordmill.transforms.rows.observed_features import ObservedFeatures
from recordmill.transforms.tasks.context import FORMAT_VERSION, fixed_fields
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

Digest = tuple[int, int]
"""The sums of all rows' two hashes, modulo 2**64: the same in every order."""

_MAX_BUCKETS = 1 << 22  # of all splits together


@dataclass(frozen=True, slots=True)
class RowsSummary:
    """Facts of some rows.

    Attributes:
      rows_read: rows that came, rejects included.
      rows_rejected: those left out.
      digest: of all of them.
      histogram: planned bytes and records of those that became records, or b"".
      found: features of examples that came without a schema.
      runs: sorted runs in which the records lie, with the scratch exchange.
      reject: one of the rows left out, as a line of JSON, or b"".
    """

    rows_read: int = 0
    rows_rejected: int = 0
    digest: Digest = (0, 0)
    histogram: PackedHistogram = b""
    found: ObservedFeatures = field(default_factory=ObservedFeatures)
    runs: tuple[SortedRunRef, ...] = ()
    reject: bytes = b""


@dataclass(slots=True)
class RowsTotals:
    """The facts of all rows, added up."""

    histogram: Histogram
    rows_read: int = 0
    rows_rejected: int = 0
    digest: Digest = (0, 0)
    found: ObservedFeatures = field(default_factory=ObservedFeatures)
    reject: bytes = b""

    def add(self, facts: RowsSummary) -> None:
        self.rows_read += facts.rows_read
        self.rows_rejected += facts.rows_rejected
        self.digest = add_digests(self.digest, facts.digest)
        self.found.add(facts.found)
        if facts.reject:  # whatever order they come in, the same one is shown
            self.reject = min(self.reject or facts.reject, facts.reject)
        if facts.histogram:
            self.histogram.add_bytes(facts.histogram)

    def merge(self, other: RowsTotals) -> None:
        self.add(
            RowsSummary(
                other.rows_read,
                other.rows_rejected,
                other.digest,
                found=other.found,
                reject=other.reject,
            )
        )
        self.histogram += other.histogram


def rows_bucket_bits(job: JobSpec) -> int:
    """Bits of the order key that number a bucket, when nobody knows the rows' bytes."""
    wanted = MAX_BUCKET_BITS
    if job.sharding.num_shards is not None:
        wanted = (job.sharding.num_shards * BUCKETS_PER_SHARD - 1).bit_length()
    room = (_MAX_BUCKETS // len(job.splits)).bit_length() - 1
    return max(MIN_BUCKET_BITS, min(MAX_BUCKET_BITS, wanted, room))


def add_digests(one: Digest, other: Digest) -> Digest:
    return (one[0] + other[0]) % (1 << 64), (one[1] + other[1]) % (1 << 64)


def content_hashes(framed: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """Two u64 of each record's bytes, on every machine the same; shape (rows, 2)."""
    offsets, buffer = array_parts(framed)
    starts = (offsets[:-1] + HEAD_BYTES).tolist()
    ends = (offsets[1:] - TAIL_BYTES).tolist()
    # Python per record, 1 us each: no library hashes a batch.
    datas = map(buffer.data.__getitem__, map(slice, starts, ends))
    digests = b"".join([sha256(data).digest() for data in datas])
    words = np.frombuffer(digests, "<u8").reshape(-1, 4)[:, :2]
    return words.astype(np.uint64)


def text_digest(text: bytes) -> Digest:
    """The two hashes of one row that became no record."""
    first, second = np.frombuffer(sha256(text).digest(), "<u8", 2).tolist()
    return first, second


def sum_hashes(hashes: U64) -> Digest:
    """The digest of records with these hashes, of shape (rows, 2)."""
    first, second = hashes.sum(axis=0, dtype=np.uint64).tolist()
    return first, second


def rows_fingerprint(job: JobSpec, totals: RowsTotals) -> str:
    """Names what fixes the dataset's bytes: format version, job and all rows.

    How many rejects are allowed fixes no byte, as in recordmill.transforms.tasks.context.
    """
    digest = blake2b(digest_size=16)
    digest.update(f"recordmill {FORMAT_VERSION}\n".encode())
    digest.update(json.dumps(fixed_fields(job), sort_keys=True).encode())
    content = (totals.rows_read, totals.rows_rejected, *totals.digest)
    digest.update(f"\nrows {content}".encode())
    return digest.hexdigest()
