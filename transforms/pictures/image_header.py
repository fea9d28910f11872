"""Defines the header of a picture, and the errors of the files that read it."""

from __future__ import annotations

from dataclasses import dataclass

# Real pictures have far fewer segments before their pixels; more would only cost time.
MAX_SEGMENTS = 10_000


class ImageHeaderError(ValueError):
    """The error of bytes that are not a known picture, or whose header is damaged."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The format and size of a picture, as a decoder returns it.

    Attributes:
      format: jpeg, png, gif, bmp, webp or tiff.
      height: rows.
      width: pixels in a row.
      depth: channels.
      variant: what makes it one that TensorFlow does not decode, though it does others of
        its format, such as "bmp with 4 bits per pixel"; else "".
    """

    format: str
    height: int
    width: int
    depth: int
    variant: str = ""

    @property
    def kind(self) -> str:
        """Returns the variant, or else the format."""
        return self.variant or self.format


def too_many_error(name: str, things: str) -> ImageHeaderError:
    """Returns the error of a picture with too many segments before its pixels."""
    return ImageHeaderError(
        f"{name} has more than {MAX_SEGMENTS:,} {things} before its pixels "
        "(expected a few dozen)"
    )


def cut_error(name: str, data: bytes) -> ImageHeaderError:
    """Returns the error of a picture that ends inside its header."""
    return ImageHeaderError(f"{name} ends inside its header after {len(data)} bytes")
