"""Rows for WriteDataset and pipelines around it, on runners that download nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from job_tools import PORTABLE

from recordmill.beam_jobs.pipelines.read_dataset import ReadDataset
from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
from recordmill.beam_jobs.runners.embedded import CachedViewOptions
from recordmill.schemas.proto.example_pb2 import Example

SCHEMA: dict[str, Any] = {
    "image": {"dtype": "uint8", "shape": [4, 4, 1], "stored": "bytes_list"},
    "label": {"classes": ["cat", "dog", "owl"]},
    "weight": "float32?",
    "tags": "string[]",
    "boxes": {"dtype": "float32", "shape": [None, 4]},
    "embedding": {"dtype": "float64", "shape": [2, 3], "stored": "tensor"},
    "note": {"dtype": "string", "default": "none"},
}

EXCHANGES = ["scratch", "engine"]
RUNNERS = ["one", "two", "portable"]

_collected: list[Any] = []  # workers are threads of this process


def make_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows for SCHEMA, all different."""
    draw = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        row = {
            "image": draw.integers(0, 256, (4, 4, 1), np.uint8),
            "label": ("cat", "dog", "owl")[number % 3],
            "tags": ["red", "blue"][: number % 3],
            "boxes": draw.random((number % 4, 4), np.float32),
            "embedding": draw.random((2, 3)),
            "unnamed": "is left out",
        }
        if number % 2:
            row["weight"] = number / 8
        if number % 5:
            row["note"] = f"number {number}"
        rows.append(row)
    return rows


def example(**features: Any) -> Example:
    made = Example()
    for name, values in features.items():
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}
        if values:
            chosen = getattr(made.features.feature[name], kind[type(values[0])])
            chosen.value.extend(values)
        else:
            made.features.feature[name].int64_list.SetInParent()
    return made


def read_back(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `make_rows` as ReadDataset has it."""
    return {
        "image": row["image"],
        "label": ("cat", "dog", "owl").index(row["label"]),
        "weight": row.get("weight"),
        "tags": row["tags"],
        "boxes": row["boxes"],
        "embedding": row["embedding"],
        "note": row.get("note", "none"),
    }


def pipeline(
    runner: str = "one", bundle_repeat: int = 0
) -> AbstractContextManager[Any]:
    """A pipeline on one worker, on two, or through a job service.

    Args:
      runner: one of RUNNERS.
      bundle_repeat: how often each bundle is worked on again, as after a failure.
    """
    if runner == "portable":
        return beam.Pipeline(options=PipelineOptions(PORTABLE))
    workers = {"one": 1, "two": 2}[runner]
    # In multi_threading Beam sends bundles through gRPC, and flushes what it sends once a
    # second from another thread: a piece that is written just then can be lost.
    options = [f"--direct_num_workers={workers}", "--direct_running_mode=in_memory"]
    return beam.Pipeline(
        runner=FnApiRunner(bundle_repeat=bundle_repeat),
        options=CachedViewOptions(options),
    )


def write(
    rows: Iterable[Any],
    output: str | Path,
    schema: Any = SCHEMA,
    *,
    runner: str = "one",
    bundle_repeat: int = 0,
    **options: Any,
) -> None:
    """Writes rows as a dataset, in a pipeline of its own.

    Args:
      rows: the elements.
      output: folder of the dataset.
      schema: of the records.
      runner: see `pipeline`.
      bundle_repeat: see `pipeline`.
      options: WriteDataset's others.
    """
    with pipeline(runner, bundle_repeat) as p:
        rows = p | beam.Create(list(rows)) | beam.Reshuffle()
        rows | WriteDataset(output, schema, **options)


def _collect(element: Any) -> None:
    _collected.append(element)


def run(transform: beam.PTransform[Any, Any], runner: str = "one") -> list[Any]:
    """All elements that a root transform gives."""
    _collected.clear()
    with pipeline(runner) as p:
        p | transform | "Collect" >> beam.Map(_collect)
    return list(_collected)


def read(
    dataset: str | Path, *args: Any, runner: str = "one", **options: Any
) -> list[Any]:
    """All elements of a dataset, by ReadDataset."""
    return run(ReadDataset(dataset, *args, **options), runner)


def in_chunks(rows: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def error_of(call: Callable[[], object]) -> str:
    """What a call fails with, whatever the runner makes of it."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it went well")


ROWS = make_rows(120)
JOB: dict[str, Any] = {
    "name": "same",
    "shards": 3,
    "splits": {"train": "3/4", "test": 0.25},
}
