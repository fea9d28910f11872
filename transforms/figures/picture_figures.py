"""Sums up picture files by their headers: formats, channels, sizes, bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.transforms.arrow import value_lengths
from recordmill.transforms.figures.number_figures import NumberFigures, NumberSketch
from recordmill.transforms.pictures.header import read_header
from recordmill.transforms.pictures.image_header import ImageHeaderError

MAX_SIZES = 1_000  # widths and heights that are counted one by one
SHOWN_SIZES = 8
_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class PictureFigures:
    """What is known of some picture files.

    Attributes:
      kinds: format, channels and how many, the commonest first.
      sizes: width, height and how many, the commonest ones.
      num_sizes: how many different sizes there are; None if more than MAX_SIZES.
      widths, heights: in pixels.
      bytes: of the files.
      damaged: how many have no readable header.
      problem: of the first of these.
    """

    kinds: tuple[tuple[str, int, int], ...]
    sizes: tuple[tuple[int, int, int], ...]
    num_sizes: int | None
    widths: NumberFigures
    heights: NumberFigures
    bytes: NumberFigures
    damaged: int = 0
    problem: str = ""


class PictureSketch:
    """Picture files seen so far."""

    def __init__(self) -> None:
        self._kinds: Counter[tuple[str, int]] = Counter()
        self._sizes: Counter[tuple[int, int]] = Counter()
        self._more_sizes = False
        self._widths = NumberSketch(whole=True)
        self._heights = NumberSketch(whole=True)
        self._bytes = NumberSketch(whole=True)
        self._damaged = 0
        self._problem = ""

    def add(self, files: pa.BinaryArray) -> None:
        """Adds picture files, none of them null."""
        self._bytes.add(value_lengths(files))
        widths, heights = [], []
        # A Python call for each picture, 13 us for a JPEG: its header is read byte by byte.
        for file in files:
            try:
                header = read_header(file.as_py())
            except ImageHeaderError as error:
                self._damaged += 1
                self._problem = self._problem or str(error)[:_REASON_CHARACTERS]
                continue
            self._kinds[header.kind, header.depth] += 1
            self._count_size((header.width, header.height))
            widths.append(header.width)
            heights.append(header.height)
        self._widths.add(np.array(widths, np.int64))
        self._heights.add(np.array(heights, np.int64))

    def _count_size(self, size: tuple[int, int]) -> None:
        if size in self._sizes or len(self._sizes) < MAX_SIZES:
            self._sizes[size] += 1
        else:
            self._more_sizes = True

    def figures(self) -> PictureFigures:
        """Returns what is known by now."""
        kinds = sorted(self._kinds.items(), key=lambda item: (-item[1], item[0]))
        sizes = sorted(self._sizes.items(), key=lambda item: (-item[1], item[0]))
        return PictureFigures(
            kinds=tuple((*kind, count) for kind, count in kinds),
            sizes=tuple((*size, count) for size, count in sizes[:SHOWN_SIZES]),
            num_sizes=None if self._more_sizes else len(sizes),
            widths=self._widths.figures(),
            heights=self._heights.figures(),
            bytes=self._bytes.figures(),
            damaged=self._damaged,
            problem=self._problem,
        )
