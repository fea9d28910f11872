"""Defines the functions of the native extension, and chooses who does them.

`loops` is the extension in C where it was built, otherwise NumPy (numpy_loops.py): the
same results in more time, so workers with and without it can share a job. Set the
environment variable RECORDMILL_COMPILED=no to turn the extension off.
See docs/decisions/0009.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

Buffer = Any  # bytes, a contiguous array of NumPy, a buffer of Arrow
Column = tuple[bytes, int, Buffer, Buffer | None, Buffer | None, Buffer | None]
"""One key of the feature map, and what it holds in every row.

    key      UTF-8
    kind     the tag of its list: 0x0a bytes, 0x12 floats, 0x1a integers; or LEFT_OUT
    values   int64, float32, or the bytes of all values end to end; of bytes that are left
             out an array of int64, into which `write` writes where each value belongs
    offsets  int32, for bytes: value i is values[offsets[i]:offsets[i + 1]]
    lists    int64: the values of row i are lists[i] to lists[i + 1]; None: one in each row
    valid    one byte for each row, 0 where the feature is missing; None: it never is
"""


class Loops(Protocol):
    """The native functions. Arrays of positions and sizes are int64.

    The extension raises ValueError if a position is outside its buffer, before anything
    is read or written there. NumPy has no fast path for `jpeg`, `files`, `cells` and
    `numbers`: it answers as the extension does for input that is not plain.

    Attributes:
      CRC32C: how checksums are made: by an "instruction", a "table" or a "package".
      LEFT_OUT: the kind of bytes that are measured and not written, of one column at most.
      CELL_SLACK: bytes that the target of `cells` needs behind each column.
      NO_QUOTE: the byte that stands for no quote.
      ANY_TIME: says that a file may be from any time.
    """

    CRC32C: str
    LEFT_OUT: int
    CELL_SLACK: int
    NO_QUOTE: int
    ANY_TIME: int

    def seal(self, data: Buffer, starts: Buffer) -> None:
        """Writes lengths and checksums of the frames data[starts[i]:starts[i + 1]]."""

    def seal_around(
        self, data: Buffer, starts: Buffer, cuts: Buffer, sizes: Buffer, crcs: Buffer
    ) -> int:
        """Writes lengths and checksums of frames that each lack a cell.

        Its sizes[i] bytes belong before data[cuts[i]], and crcs[i] is their CRC-32C.
        Returns that of all frames with their cells.
        """

    def jpeg(self, data: Buffer) -> tuple[int, int, int] | None:
        """Returns height, width and depth of a JPEG; None if it is perhaps not whole."""

    def damaged(self, data: Buffer, starts: Buffer, lengths: Buffer) -> int:
        """Returns the first frame whose length or checksums are wrong, or -1."""

    def frames(self, data: Buffer, at: int, starts: Buffer) -> int:
        """Finds frames that follow each other from data[at] on, by their heads alone.

        Writes where each begins, and behind these where the last one ends; at most as
        many as there is place for. Returns how many.
        """

    def gather(
        self,
        descriptor: int,
        offsets: Buffer,
        starts: Buffer,
        lengths: Buffer,
        target: Buffer,
    ) -> int:
        """Reads lengths[i] bytes at offsets[i] of a file to target[starts[i]:].

        Returns the first part that cannot be read to its end, or -1.
        """

    def files(
        self, paths: tuple[bytes, ...], sizes: Buffer, modified: Buffer
    ) -> list[bytes]:
        """Reads whole files.

        Ends before one that cannot be read, has not its size, or was not written at its
        time: nanoseconds since 1970, or ANY_TIME.
        """

    def status(
        self, paths: bytes, sizes: Buffer, modified: Buffer, changed: Buffer
    ) -> None:
        """Writes size and times of files: nanoseconds since 1970.

        Each path ends with a zero byte. The size is -1 where there is no regular file, it
        cannot be asked, or 64 bits do not hold its times.
        """

    def copy(self, pieces: list[memoryview], skip: int, target: Buffer) -> int:
        """Copies the bytes of pieces to the target, one behind the other.

        Leaves out the first `skip` bytes of all, and ends where the target does. Returns
        how many bytes were copied.
        """

    def interleave(self, rows: Buffer, before: int, count: int, images: Buffer) -> None:
        """Lays the planes of so many images side by side: rrr ggg bbb as rgb rgb rgb.

        The planes of an image follow each other in its row, with `before` bytes before
        them; all rows have one length, and all images.
        """

    def row_ends(self, text: Buffer) -> int:
        r"""Returns how many bytes of a text are \r or \n."""

    def cells(
        self,
        text: Buffer,
        delimiter: int,
        quote: int,
        max_rows: int,
        offsets: Buffer,
        valid: Buffer,
        facts: Buffer,
        target: Buffer,
    ) -> int:
        """Splits the rows of a CSV text into columns of cells, without their quotes.

        Args:
          text: whole rows; only the last one may lack its end.
          delimiter, quote: bytes; the quote may be NO_QUOTE.
          max_rows: that there is place for.
          offsets: is filled; int32, `max_rows` + 1 for each column, from 0.
          valid: is filled for columns with empty cells; a bit for each row, 0 where the
            cell is empty, whole bytes for `max_rows` rows of each column.
          facts: is filled; int64 for each column: where its cells begin in the target;
            behind these for each column: how many are empty.
          target: is filled with the text of the cells. As long as the text, and CELL_SLACK
            for each column.

        Returns:
          The number of rows; or -1 if there are more than `max_rows`, if one has another
          number of cells than there are columns, if text stands behind a closing quote or
          a quote is never closed.
        """

    def numbers(
        self,
        offsets: Buffer,
        data: Buffer,
        valid: Buffer | None,
        is_float: bool,
        target: Buffer,
    ) -> bool:
        """Reads cells that hold plain numbers, such as 0, -12 and (as floats) 3.50.

        Args:
          offsets: int32; cell i is data[offsets[i]:offsets[i + 1]].
          data: bytes of the cells.
          valid: a bit for each cell, 0 where it is missing; None: none is.
          is_float: whether to read float64 or int64.
          target: is filled, with 0 where a cell is missing.

        Returns:
          Whether all cells are plain; if not, what is in the target means nothing.
        """

    def measure(self, columns: Sequence[Column], sizes: Buffer) -> None:
        """Writes the size of each row's Features message into `sizes`."""

    def write(
        self,
        columns: Sequence[Column],
        first: int,
        sizes: Buffer,
        starts: Buffer,
        head_room: int,
        tail_room: int,
        target: Buffer,
    ) -> None:
        """Writes each row's Example between `head_room` and `tail_room` zero bytes.

        The rows are those of the columns from `first` on, as many as there are sizes. The
        i-th of them is target[starts[i]:starts[i + 1]]; `sizes` are those of `measure`,
        which count what is left out.
        """


def _load() -> Loops:
    name = "recordmill.transforms.native._loops"
    if not _TURNED_OFF:
        try:
            module = import_module(name)
        except ImportError:
            module = None
        # In a checkout the extension may be older than this file: as if not built.
        names = {*vars(Loops), *Loops.__annotations__}
        if module and all(hasattr(module, each) for each in names if each[0] != "_"):
            return cast("Loops", module)
    return cast("Loops", import_module("recordmill.transforms.native.numpy_loops"))


_TURNED_OFF = os.environ.get("RECORDMILL_COMPILED", "").lower() in {"0", "no", "off"}
loops = _load()


def describe() -> str:
    """Returns whether the native extension is used, and what is lost if not."""
    if loops.CRC32C != "package":
        return f"native extension: yes (CRC-32C by {loops.CRC32C})"
    if _TURNED_OFF:
        return "native extension: no (RECORDMILL_COMPILED turns it off)"
    return (
        "native extension: no, it could not be built at install (the same results in more "
        "time). Install a C compiler, then reinstall recordmill"
    )
