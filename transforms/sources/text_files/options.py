"""Declares the input format text, of lines or whole files, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from recordmill.schemas.errors import UsageError
from recordmill.transforms.sources.images.options import (
    TABLE_ROWS,
    FileKind,
    FileOptions,
)
from recordmill.transforms.sources.registry import FilesOptions, KeyFolders, SplitFrom

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_BLANK_BYTES = b"\t\n\f\r"


def _is_text(head: bytes) -> bool:
    r"""Returns whether the first bytes of a file are UTF-8 without control characters.

    >>> _is_text("grün".encode()[:3]), _is_text(b"a\0b")
    (True, False)
    """
    if any(byte < 32 and byte not in _BLANK_BYTES for byte in head):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


class TextOptions(FileOptions, FilesOptions):
    """Options of the input format text, for lines and for whole files."""

    kind: ClassVar[FileKind] = FileKind(
        "text file",
        (".txt", ".text"),
        lambda _: "text",  # invalid UTF-8 may follow, so reading checks the whole file
        _is_text,
        lambda head: "UTF-16" if head.startswith(_UTF16_MARKS) else "",
        "UTF-8",
        "unsupported-text",
        "unlisted-text",
    )

    split_from: SplitFrom = "auto"
    partitions: KeyFolders = "hive"
    blank_lines: Literal["keep", "skip"] = Field(
        "keep", description="whether empty lines are records"
    )
    whole_files: bool = Field(
        False,
        description="write one record per file instead of one per line, with labels "
        "from folders or a table, as for images",
    )
    table_rows: Literal["file", "object"] = Field("file", description=TABLE_ROWS)

    @property
    def column_names(self) -> Mapping[str, str]:
        return {name: name for name in ("text", "label", "filename")}

    def require_consistent(self) -> None:
        """Checks that options of lines and of whole files are not combined."""
        problem, wrong_options = (
            "with `whole_files` each file is a record",
            {"blank_lines", "partitions"},
        )
        if not self.whole_files:
            problem = "each line is a record: use `whole_files`, which has labels"
            wrong_options = FileOptions.model_fields.keys() - {"split_from"}
        usual = type(self).model_fields
        for name in sorted(wrong_options):
            if getattr(self, name) != usual[name].default:
                raise UsageError(f"`{name}`: {problem}, or leave it out")
        super().require_consistent()
