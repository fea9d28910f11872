"""Counts and checksums kept rejects, whatever files they are in."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

Bytes = bytes  # the type; in the class below it is the name of an attribute

_DIGEST_SPACE = 1 << 64


@dataclass(frozen=True, slots=True)
class RejectTotals:
    """The number of some rejects and a digest of them.

    Which files they are in, and in which order, depends on the exchange. So the digest
    is a sum over all lines; the totals of two tasks or parts add up to those of both.

    Attributes:
      rows: number of rejects, each of which is a line.
      bytes: of all lines, with their ends.
      digest: sum of a 64-bit hash of each line, modulo 2**64.
    """

    rows: int = 0
    bytes: int = 0
    digest: int = 0

    def __add__(self, other: RejectTotals) -> RejectTotals:
        return RejectTotals(
            self.rows + other.rows,
            self.bytes + other.bytes,
            (self.digest + other.digest) % _DIGEST_SPACE,
        )

    @classmethod
    def of(cls, data: Bytes) -> RejectTotals:
        """Returns the totals of a file of rejects."""
        digest = 0
        lines = data.split(b"\n")
        for line in lines[:-1]:  # few: a reject costs much more elsewhere
            hashed = blake2b(line, digest_size=8).digest()
            digest += int.from_bytes(hashed, "little")
        return cls(len(lines) - 1, len(data), digest % _DIGEST_SPACE)


NO_REJECTS = RejectTotals()
