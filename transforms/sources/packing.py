"""Defines how the text of a table is packed into a file: compression and encoding."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import NamedTuple

from recordmill.transforms.storage.input_stream import compression_of as compression_of

UTF_8 = "utf-8"
# Those of 32 bits first: one of 16 bits is the start of one of them.
_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True, slots=True)
class Packing:
    """How a file becomes UTF-8 text."""

    compression: str = ""  # gzip, bz2, xz or zstd; "" for none
    encoding: str = UTF_8  # Python's name of the text's encoding

    @property
    def is_plain(self) -> bool:
        """Tells whether the file is text in UTF-8, which can be read from anywhere."""
        return not self.compression and self.encoding == UTF_8

    @property
    def described(self) -> str:
        """Returns what it is in words: "gzip, utf-16"."""
        parts = [self.compression, self.encoding if self.encoding != UTF_8 else ""]
        return ", ".join(filter(None, parts)) or "text in utf-8"


class AskedPacking(NamedTuple):
    """What options say of the packing; None where it is found in the first file."""

    compression: str | None = None
    encoding: str | None = None


PLAIN = Packing()
FIND_PACKING = AskedPacking()
UNPACKED_TIMES = 8  # as many bytes as a compressed file has, mostly fewer
MARK_BYTES = 8  # at a file's start, that tell its compression or encoding


def other_compression(uri: str, found: str, expected: str) -> str:
    """Describes a file that is compressed in another way than the first one."""
    return (
        f"{uri}: is {found or 'not'} compressed, but the first file is "
        f"{expected or 'not'}. Convert such files by themselves, or make them alike"
    )


def encoding_of(start: bytes) -> str:
    """Returns the encoding of a text by the mark before it; UTF-8 without one."""
    found = (name for mark, name in _BOMS.items() if start.startswith(mark))
    return next(found, UTF_8)
