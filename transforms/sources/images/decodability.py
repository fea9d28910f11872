"""Decides whether one TensorFlow op decodes all pictures, by the formats really found.

TFDS decodes JPEG, PNG and BMP to arrays of one rank, but not GIF (which has frames), WebP
and TIFF, nor every BMP. With one of these among them, readers get the encoded bytes of
every picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from recordmill.schemas.feature_spec import Content, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.schemas.text import count, first_names
from recordmill.transforms.pictures.image_header import ImageHeaderError

DECODABLE_ENDINGS = (".jpeg", ".jpg", ".png", ".bmp")
_DECODABLE_FORMATS = frozenset({"jpeg", "png", "bmp"})
_SEEN_DECODABLE, _SEEN_OTHER = 1, 2  # type flags

FACT = "readers get"
DECODED, ENCODED = "decoded pictures (TFDS)", "encoded bytes"
ENCODED_FRAMES = "lists of encoded frames"
_WAY_OUT = (
    "readers get the encoded bytes of all pictures. Use `undecodable=reencode` to make "
    "PNGs of them, `undecodable=reject` to leave them out, or save them as JPEG or PNG"
)


def named_undecodable(pictures: Sequence[InputFile]) -> list[str]:
    """Returns the paths whose ending is that of a format that TFDS does not decode."""
    others = (".gif", ".webp", ".tif", ".tiff")
    return [f.path for f in pictures if f.path.lower().endswith(others)]


def warn_by_names(paths: Sequence[str]) -> list[str]:
    """Returns a warning before the run, if endings are those of such formats."""
    if not paths:
        return []
    return [
        f"TFDS cannot decode {endings_of(paths)} (such as {paths[0]}), so {_WAY_OUT}"
    ]


def endings_of(paths: Sequence[str]) -> str:
    """Returns how many paths have which ending, the commonest first."""
    endings = Counter(PurePosixPath(path).suffix.lower() for path in paths)
    return first_names([f"{number:,} {name}" for name, number in endings.most_common()])


def warn_by_content(odd: Sequence[OddRows]) -> list[str]:
    """Returns a warning after the run, if such formats were found."""
    if not odd:
        return []
    told = first_names(
        [f"{count(each.rows, each.kind)} such as {each.example}" for each in odd]
    )
    return [f"TFDS cannot decode these pictures: {told}; so {_WAY_OUT}"]


def require_decodable(found: str) -> None:
    """Refuses a format that readers could not decode with the others.

    Raises:
      ImageHeaderError: says so.
    """
    if not is_decodable(found):
        raise ImageHeaderError(
            f"{found} is not decoded by TFDS (expected JPEG, PNG or plain BMP, because of "
            "`undecodable=reject`, or because the dataset has only these)"
        )


def is_decodable(kind: str) -> bool:
    """Tells whether TFDS decodes pictures of this kind."""
    return kind in _DECODABLE_FORMATS


def observe(kinds: Sequence[str], paths: Sequence[str]) -> tuple[OddRows, ...]:
    """Returns the pictures that TFDS cannot decode, counted by format or variant."""
    if _DECODABLE_FORMATS.issuperset(kinds):
        return ()
    return OddRows.merged(
        (OddRows(found, 1, path),)
        for found, path in zip(kinds, paths, strict=True)
        if found not in _DECODABLE_FORMATS
    )


def type_flags(kinds: Sequence[str], odd: Sequence[OddRows]) -> TypeFlags:
    """Returns the type flags of a batch of pictures."""
    if not kinds:
        return ()
    is_mixed = sum(each.rows for each in odd) < len(kinds)
    return ((_SEEN_OTHER if odd else 0) | (_SEEN_DECODABLE if is_mixed else 0),)


def all_decodable(observed: TypeFlags) -> bool | None:
    """Tells whether all pictures with these type flags can be decoded; None: unknown."""
    return not observed[0] & _SEEN_OTHER if observed else None


def decodable_in(schema: Schema) -> bool:
    """Tells whether readers of a dataset decode its pictures."""
    return any(
        feature.content is Content.PICTURE and feature.dtype != "bytes"
        for feature in schema.features
    )
