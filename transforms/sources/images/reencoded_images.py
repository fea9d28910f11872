"""Reads folders of pictures; those that TFDS cannot decode become PNGs.

The size of a PNG is known only once it is made, so the plan counts the bytes of the
records, and they are not exchanged by reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.schemas.text import count, first_names
from recordmill.transforms.pictures.check import check_picture
from recordmill.transforms.pictures.header import read_header
from recordmill.transforms.pictures.reencode import reencode
from recordmill.transforms.sources.images.decodability import (
    endings_of,
    is_decodable,
    named_undecodable,
    type_flags,
)
from recordmill.transforms.sources.images.options import Undecodable
from recordmill.transforms.sources.images.read_pictures import Picture
from recordmill.transforms.sources.images.source import ImagesSource

FACT = "re-encoded as PNG"
_LOSS = ", "  # between the kind of a picture and what is lost of it
_GROWTH = 16  # bytes of a PNG for each of a WebP or GIF, at most in most of them


@dataclass(frozen=True)
class ReencodedImages(ImagesSource):
    """Pictures in a folder for each class, all of them decodable by TFDS."""

    supports_references = False
    sizes_known_upfront = False
    sizes_unknown = "with `undecodable=reencode` the size of a picture is known only once it is made"
    read_rate = 5e6  # if all are re-encoded: 1.4e6 for WebP, 17e6 for TIFF

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return _GROWTH * super().estimated_bytes(files)

    def understood(self) -> Understood:
        odd = named_undecodable(self.listing)
        expected = f"by their names {endings_of(odd)}" if odd else "none by their names"
        return self.told.updated(Understood(((FACT, expected),)))

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> Understood:
        told = super().understood_at_end(schema, (), observed)
        number = sum(each.rows for each in odd)
        fact = (FACT, f"{number:,} ({_named(odd)})" if odd else "0")
        lossy = [each for each in odd if _LOSS in each.kind]
        warnings = (_warning(lossy),) if lossy else ()
        return Understood((*told.facts, fact), (*told.warnings, *warnings))

    def _undecodable_beside(self, is_decodable: bool) -> Undecodable:
        return "reencode"

    def _type_flags(self, kinds: Sequence[str], odd: Sequence[OddRows]) -> TypeFlags:
        return type_flags(kinds, ())

    def _take(self, data: bytes) -> Picture:
        header = check_picture(
            data, level=self.check_pictures, max_pixels=self.max_pixels
        )
        if is_decodable(header.kind):
            return Picture(data, header, header.kind)
        made = reencode(data, header, self.max_pixels)
        kind = _LOSS.join((header.kind, *made.losses))
        return Picture(made.data, read_header(made.data), kind)


def _named(odd: Sequence[OddRows]) -> str:
    return first_names([f"{each.rows:,} {each.kind}" for each in odd])


def _warning(lossy: Sequence[OddRows]) -> str:
    told = first_names(
        [
            f"{count(each.rows, 'picture')} ({each.kind}) such as {each.example}"
            for each in lossy
        ]
    )
    return (
        f"not all of these pictures is in their PNGs: {told}. Use `undecodable=keep` to "
        "keep their files as they are, or `undecodable=reject` to leave them out"
    )
