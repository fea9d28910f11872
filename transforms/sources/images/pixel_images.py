"""Reads folders of pictures whose pixels are made anew: scaled, turned, encoded.

The size of a picture is known only once it is made, so the plan counts the bytes of the
records, and they are not exchanged by reference. Each range makes one picture after the
other, and a runner reads as many ranges at once as it has workers: decoding, scaling and
encoding run outside of Python's lock, so that all cores are at work without threads of
our own. Ranges are small for that reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import InputRange, OddRows, TypeFlags
from recordmill.transforms.pictures.check import check_picture
from recordmill.transforms.pictures.make_picture import make_picture
from recordmill.transforms.pictures.pixel_rules import AS_THEY_ARE, PixelRules
from recordmill.transforms.sources.base import RANGE_BYTES
from recordmill.transforms.sources.images.cut_pictures import cut_pictures
from recordmill.transforms.sources.images.decodability import (
    DECODED,
    ENCODED,
    ENCODED_FRAMES,
    FACT,
    is_decodable,
    require_decodable,
    type_flags,
)
from recordmill.transforms.sources.images.options import Undecodable
from recordmill.transforms.sources.images.pixel_columns import (
    frame_lists,
    pixel_lists,
)
from recordmill.transforms.sources.images.read_pictures import Picture, ReadPictures
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.sources.images.tell_pixels import (
    CHANGE,
    MADE_PNG,
    changes_told,
    rules_told,
    warnings_of,
)
from recordmill.transforms.sources.source_rows import ReferencedRows

_GROWTH = 16  # bytes of a PNG for each of a WebP or JPEG, at most in most of them
_ENCODED_SAMPLES = 1  # bytes of a JPEG or PNG for each sample, at most


@dataclass(frozen=True)
class PixelImages(ImagesSource):
    """Pictures in a folder for each class, made anew as rules say.

    Attributes:
      rules: what is to become of the pixels.
    """

    rules: PixelRules = AS_THEY_ARE

    supports_references = False
    sizes_known_upfront = False
    sizes_unknown = "the size of a picture is known only once its pixels are made"
    read_rate = 25e6  # JPEGs of half a megapixel scaled to 224; 75e6 of a megapixel

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        height, width, channels = self.rules.shape
        if height and width:
            samples = height * width * (channels or 4)
            made = _ENCODED_SAMPLES * samples * len(files)
            if not self.rules.max_frames:
                return made
            return max(made, _GROWTH * super().estimated_bytes(files))
        return _GROWTH * super().estimated_bytes(files)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return cut_pictures(
            self.listing, self._splits(), self.root, max_range_bytes=RANGE_BYTES
        )

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        features = super().schema(observed, nulls).features
        if not self.rules.makes_all:
            return Schema(features)
        return Schema(
            tuple(
                self._image(each) if each.content is Content.PICTURE else each
                for each in features
            )
        )

    def _image(self, feature: FeatureSpec) -> FeatureSpec:
        """Returns the feature of the pictures, with what of their shape is known."""
        rules = self.rules
        shape: tuple[int | None, ...] = rules.shape
        if rules.max_frames and rules.form != "raw":  # a list of picture files
            return replace(
                feature, dtype="bytes", shape=(None,), content=Content.VALUES
            )
        if rules.form == "webp":  # readers get the encoded bytes
            return replace(feature, dtype="bytes", shape=())
        content = Content.PICTURE
        if rules.form == "raw":
            # The bytes of an array do not tell two sides; a tensor has them with it.
            content = Content.TENSOR if None in shape else Content.ARRAY
            shape = (None, *shape) if rules.max_frames else shape
        return replace(feature, dtype="uint8", shape=shape, content=content)

    def understood(self) -> Understood:
        facts = (*self._readers_get(), *rules_told(self.rules))
        return self.told.updated(Understood(facts))

    def _readers_get(self) -> tuple[tuple[str, str], ...]:
        """Returns the fact of what readers get, where all pictures are made anew."""
        if not self.rules.makes_all:
            return ()
        told = {"raw": "arrays of pixels", "webp": ENCODED}
        text = told.get(self.rules.form, DECODED)
        if self.rules.max_frames:
            text = "arrays of frames" if self.rules.form == "raw" else ENCODED_FRAMES
        return ((FACT, text),)

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> Understood:
        changed = [each for each in odd if CHANGE in each.kind]
        others = () if self.rules.makes_all else tuple(set(odd) - set(changed))
        told = super().understood_at_end(schema, others, observed)
        facts = (*self._readers_get(), *changes_told(changed))
        return Understood(
            (*told.facts, *facts), (*told.warnings, *warnings_of(changed))
        )

    def _undecodable_beside(self, is_decodable: bool) -> Undecodable:
        if self.undecodable == "reencode":
            return "reencode"
        return super()._undecodable_beside(is_decodable)

    def _type_flags(self, kinds: Sequence[str], odd: Sequence[OddRows]) -> TypeFlags:
        if self.rules.makes_all:
            return type_flags(kinds, ())
        # What was turned is a JPEG or a PNG now.
        return type_flags(kinds, [each for each in odd if CHANGE not in each.kind])

    def _rows_of(self, found: ReadPictures, *, by_view: bool = False) -> ReferencedRows:
        rows = super()._rows_of(found)
        images = self._column(rows.batch["image"], found)
        column = rows.batch.schema.get_field_index("image")
        rows.batch = rows.batch.set_column(column, "image", images)
        return rows

    def _column(self, images: pa.BinaryArray, found: ReadPictures) -> pa.Array:
        """Returns the column of pictures that were made, as the schema has it."""
        if self.rules.form != "raw":
            return (
                frame_lists(images, found.frames) if self.rules.max_frames else images
            )
        if None not in self.rules.shape:
            return images
        frames = found.frames if self.rules.max_frames else None
        return pixel_lists(images, found.headers, frames)

    def _take(self, data: bytes) -> Picture:
        # What is decoded anyway need not be decoded for the check.
        level = self.check_pictures
        if self.rules.makes_all and level == "decode":
            level = "structure"
        header = check_picture(data, level=level, max_pixels=self.max_pixels)
        made = make_picture(data, header, self.rules, self.max_pixels)
        changes: tuple[str, ...] = (header.kind,)
        if made is None and not is_decodable(header.kind):
            if self.undecodable == "reject":
                require_decodable(header.kind)
            if self.undecodable == "reencode":
                as_png = replace(self.rules, makes_all=True, form="png")
                made = make_picture(data, header, as_png, self.max_pixels)
                changes = (header.kind, MADE_PNG)
        if made is None:
            return Picture(data, header, header.kind)
        kind = CHANGE.join((*changes, *made.changes))
        frames = made.frame_bytes if self.rules.max_frames else ()
        return Picture(made.data, made.header, kind, frames)
