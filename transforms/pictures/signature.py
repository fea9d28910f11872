"""Recognizes files by their first bytes: pictures that are read, and others."""

from __future__ import annotations

SIGNATURE_BYTES = 16

_SIGNATURES = (
    ("jpeg", (b"\xff\xd8\xff",)),
    ("png", (b"\x89PNG\r\n\x1a\n",)),
    ("gif", (b"GIF87a", b"GIF89a")),
    ("bmp", (b"BM",)),
    ("tiff", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
)
# After 4 bytes and "ftyp", the format of an ISO media file.
_ISO_PICTURES = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1"), "HEIC"),
}
_OTHER_PICTURES = (
    ("JPEG 2000", (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")),
    ("JPEG XL", (b"\xff\x0a", b"\0\0\0\x0cJXL ")),
    ("PSD", (b"8BPS",)),
)


def picture_format(head: bytes) -> str:
    """Returns the format of a picture that is read here, or "".

    Args:
      head: the file's first SIGNATURE_BYTES bytes, or more.
    """
    for name, starts in _SIGNATURES:
        if head.startswith(starts):
            return name
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    return ""


def is_certain_picture(head: bytes) -> bool:
    """Tells whether a file without a picture's name is one.

    "BM" alone begins too much text; bytes 6 to 9 of a BMP are zero.
    """
    kind = picture_format(head)
    return bool(kind) and (kind != "bmp" or head[6:10] == bytes(4))


def other_picture_format(head: bytes) -> str:
    """Returns the name of a picture's format that is not read here, or ""."""
    if head[4:8] == b"ftyp":
        return _ISO_PICTURES.get(head[8:12], "")
    return next(
        (name for name, starts in _OTHER_PICTURES if head.startswith(starts)), ""
    )
