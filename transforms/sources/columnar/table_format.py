"""Describes an input format of files that hold columns: Parquet and Arrow IPC."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def table_format(
    kind: Literal["parquet", "arrow"], summary: str, folder: str
) -> SourceFormat[SourceOptions]:
    """Returns the format of one kind of table file, with examples on `folder`."""
    convert = f"recordmill convert {kind} {folder} out"
    return SourceFormat(
        name=kind,
        summary=summary,
        options=SourceOptions,
        make_source=partial(_make_source, kind),
        position_unit="row",
        examples=(
            ("a folder of tables with the same columns", f"{convert}/{folder}"),
            (
                "for ten hosts, a tenth of the rows for tests",
                f"{convert}/{folder}-of-ten-hosts --readers 10 \\\n    --split train=0.9 --split test=0.1",
            ),
            (
                "a schema file to begin with",
                f"recordmill schema infer {kind} {folder} -o {folder}.yaml",
            ),
        ),
    )


def _make_source(
    kind: Literal["parquet", "arrow"],
    options: SourceOptions,  # noqa: ARG001 (there are none)
    as_text: bool,
    storage: StorageOptions,
) -> Source:
    from recordmill.transforms.sources.tables import ColumnarSource

    return ColumnarSource(kind=kind, as_declared=as_text, storage=storage)
