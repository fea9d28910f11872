"""Offers JSON Lines as an input format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source

_STEP_BYTES = 4 << 20


def make_source(
    options: SourceOptions,
    as_text: bool,
    storage: StorageOptions,
) -> Source:
    """Makes the source of JSON Lines."""
    from recordmill.transforms.sources.jsonl.source import JsonLinesSource

    return JsonLinesSource(as_declared=as_text, storage=storage)


def line_of(read: Callable[[int, int], bytes], offset: int) -> int:
    """Returns the number of the line that begins at a byte, from 1."""
    return 1 + sum(
        read(start, min(start + _STEP_BYTES, offset)).count(b"\n")
        for start in range(0, offset, _STEP_BYTES)
    )


FORMAT = SourceFormat(
    name="jsonl",
    summary="JSON Lines: an object in each line (.jsonl, .ndjson).",
    options=SourceOptions,
    make_source=make_source,
    line_of=line_of,
    examples=(
        (
            "a folder of files with the same keys",
            "recordmill convert jsonl texts out/texts",
        ),
        (
            "a tenth of the rows for tests, at most five bad lines",
            "recordmill convert jsonl texts out/split-texts --split train=0.9 \\\n    --split test=0.1 --max-rejects 5",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer jsonl texts -o texts.yaml",
        ),
    ),
)
