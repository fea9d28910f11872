"""WriteDataset: a PTransform that makes a dataset of the rows of any pipeline.

    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([{"text": "so", "label": 1}])
        rows | WriteDataset("out/words", {"text": "string", "label": "int64"})

In place of beam.io.WriteToTFRecord: the records are shuffled globally, lie in balanced
shards and are published whole or not at all, with manifest, schema and checksums. See
docs/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from os import PathLike, fspath
from typing import Any, Literal
from uuid import uuid4

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from pydantic import ValidationError

from recordmill.beam_jobs.pipelines.rows_exchange import exchange_for, is_embedded
from recordmill.beam_jobs.pipelines.write_rows import (
    REJECTS,
    SUMMARIES,
    EncodeRows,
    SumRows,
    WriteFromPieces,
    WriteFromRuns,
    write_reject_file,
)
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.shards import ShardResult
from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.features.declare import declare_schema
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import (
    DEFAULT_SHARD_BYTES,
    FIRST_VERSION,
    PIPELINE_ROWS,
    Compression,
    JobSpec,
    Payload,
    RejectLimit,
    Sharding,
    SplitSpec,
    identifier_from,
)
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.parsing.problems import parse_declared
from recordmill.schemas.parsing.schema_file import load_schema
from recordmill.schemas.sizes import parse_size
from recordmill.transforms.encode.payloads import check_payload
from recordmill.transforms.rows.row_summary import rows_bucket_bits
from recordmill.transforms.rows.rows_job import (
    RowsJob,
    RowsPlan,
    check_output_early,
    plan_rows,
    publish_rows,
)
from recordmill.transforms.storage import Preflight, open_store
from recordmill.transforms.storage.reading import is_local, read_file

AnySchema = DeclaredSchema | Schema | Mapping[str, Any] | str | PathLike[str]


class WriteDataset(beam.PTransform[PCollection[Any], PCollection[Manifest]]):
    """Writes a bounded collection as one dataset; gives its manifest, once.

    Elements, also mixed:

    - dicts and pyarrow.RecordBatch (or Table): need a schema, by which they are
      converted as CSV columns are. Columns that it does not name are left out.
    - tf.train.Example (of TensorFlow or any other library), and bytes that are such:
      written as they are. With a schema each is checked against it; without one the
      features are those that are found.
    - bytes of other records: with payload="raw" and no schema, written unseen.

    Where a record goes hangs on a seeded hash of its content, so the same rows give the
    same bytes in whatever order, bundles and runner they come. Repeated rows stay.
    """

    def __init__(
        self,
        output: str | PathLike[str],
        schema: AnySchema | None = None,
        *,
        name: str = "",
        version: str = FIRST_VERSION,
        splits: Mapping[str, str | float | Fraction] | None = None,
        split_by: str | None = None,
        shards: int | None = None,
        shard_size: int | str = DEFAULT_SHARD_BYTES,
        seed: int = 0,
        compression: Compression = "none",
        payload: Payload = "example",
        max_rejects: int | str = 0,
        overwrite: bool = False,
        exchange: Literal["auto", "scratch", "engine"] = "auto",
        scratch: str | PathLike[str] = "",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Touches no storage.

        Args:
          output: folder of the dataset, a path or a URL.
          schema: of the records: the path of a schema file, {name: declaration} as one
            has it, or what was loaded from one.
          name: of the dataset; by default the output's last part.
          version: three numbers.
          splits: name and share of each; by default all rows are "train".
          split_by: a column, or a feature of examples: rows with equal values share a
            split. By default equal rows do.
          shards: of each split; by default as many as `shard_size` asks for.
          shard_size: bytes of a shard, or text like "128MiB".
          seed: another gives another order and other splits.
          compression: of the shards, "none" or "gzip".
          payload: what a record holds; of examples and bytes, what it is taken for.
          max_rejects: rows that may be rejected, a count or a share like "0.5%".
          overwrite: replace another dataset.
          exchange: how records reach their shards: "scratch" through files, "engine"
            through the runner's shuffle; the bytes are the same. By default what suits
            the runner.
          scratch: folder for these files that all workers see; by default in the output.
          storage: non-secret options of the output's storage.

        Raises:
          UsageError: an argument that cannot be.
          SchemaError: a schema that cannot be, or not with this payload.
        """
        super().__init__()
        self._output = fspath(output)
        self._schema = fspath(schema) if isinstance(schema, PathLike) else schema
        self._overwrite = overwrite
        self._exchange = exchange
        self._scratch = fspath(scratch)
        self._storage = StorageOptions.of(storage or {})
        if exchange not in ("auto", "scratch", "engine"):
            raise UsageError(
                f"WriteDataset: exchange is auto, scratch or engine, got {exchange!r}"
            )
        if not is_local(self._scratch):
            raise UsageError(
                f"WriteDataset: scratch: expected a local folder, got {self._scratch}"
            )
        if schema is None and payload not in ("example", "raw"):
            raise UsageError(
                f"WriteDataset: payload {payload!r} needs a schema that says what the "
                "records hold"
            )
        shares = splits or {"train": 1}
        try:
            if isinstance(shard_size, str):
                shard_size = parse_size(shard_size)
            self._job = JobSpec(
                source=PIPELINE_ROWS,
                name=name or identifier_from(self._output.rstrip("/").split("/")[-1]),
                version=version,
                splits=tuple(
                    SplitSpec(name=split, fraction=str(share))
                    for split, share in shares.items()
                ),
                split_by=split_by,
                sharding=Sharding(num_shards=shards)
                if shards is not None
                else Sharding(shard_bytes=shard_size),
                seed=seed,
                compression=compression,
                max_rejects=RejectLimit(text=str(max_rejects)),
                payload=payload,
            )
        except ValueError as error:
            raise UsageError(f"WriteDataset: {_first_problem(error)}") from error
        if not isinstance(self._schema, str | None):
            self._job = _with_schema(self._job, _declared(self._schema))
        self._store = open_store(self._output, self._storage)

    def expand(self, rows: PCollection[Any]) -> PCollection[Manifest]:
        if not rows.is_bounded:
            raise UsageError(
                f"WriteDataset({self._output!r}): the collection is unbounded, and a "
                "dataset is published once, when all rows were seen"
            )
        work = self._work(rows.pipeline)
        begin = rows.pipeline | "Begin" >> beam.Create([None], reshuffle=False)
        ready = begin | "LookAhead" >> beam.Map(_look_ahead, work)  # Preflight
        encoded = (
            rows
            | "OneWindow" >> beam.WindowInto(GlobalWindows())
            | "Encode"
            >> beam.ParDo(EncodeRows(work)).with_outputs(
                SUMMARIES, REJECTS, main="pieces"
            )
        )
        facts = encoded[SUMMARIES]  # RowsSummary
        planned = (
            facts
            | "SumRows"
            >> beam.CombineGlobally(SumRows(len(work.split_names), work.bucket_bits))
            | "Plan" >> beam.Map(plan_rows, work)  # Planned
        )
        write = (
            WriteFromRuns(work, facts)
            if work.exchange == "scratch"
            else WriteFromPieces(encoded["pieces"])
        )
        shards = planned | "Write" >> write  # ShardResult
        kept = (
            encoded[REJECTS]
            | "Typed"
            >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
            | "ByFile" >> beam.GroupByKey()
            | "KeepRejects" >> beam.Map(write_reject_file, planned=AsSingleton(planned))
        )
        return begin | "Publish" >> beam.Map(
            _publish,
            work,
            ready=AsSingleton(ready),
            planned=AsSingleton(planned),
            shards=AsList(shards),
            kept=AsList(kept),
        )

    def _work(self, pipeline: beam.Pipeline) -> RowsJob:
        job = self._job
        if isinstance(self._schema, str):
            data = read_file(self._schema)
            job = _with_schema(job, load_schema(data, self._schema))
        return RowsJob(
            job=job,
            store=self._store,
            bucket_bits=rows_bucket_bits(job),
            exchange=exchange_for(pipeline)
            if self._exchange == "auto"
            else self._exchange,
            overwrite=self._overwrite,
            run_id=uuid4().hex[:11],
            scratch=self._scratch,
            remote=not is_embedded(pipeline),
        )


def _look_ahead(_: None, work: RowsJob) -> Preflight:
    return check_output_early(work)


def _publish(
    _: None,
    work: RowsJob,
    ready: Preflight,
    planned: RowsPlan,
    shards: list[ShardResult],
    kept: list[int],
) -> Manifest:
    return publish_rows(work, ready, planned, shards, sum(kept))


def _declared(schema: Any) -> DeclaredSchema:
    if isinstance(schema, DeclaredSchema):
        return schema
    if isinstance(schema, Schema):
        return declare_schema(schema)
    if not isinstance(schema, Mapping):
        raise UsageError(
            "WriteDataset: schema is a path, a mapping of features, a DeclaredSchema or "
            f"a Schema, got {type(schema).__name__}"
        )
    return parse_declared(
        {"features": dict(schema)}, "the schema given to WriteDataset"
    )


def _with_schema(job: JobSpec, declared: DeclaredSchema) -> JobSpec:
    """The job with its schema.

    Raises:
      SchemaError: no such records can be made of it.
    """
    for name, feature in declared.features.items():
        if feature.bytes_from:
            raise SchemaError(
                f"feature {name!r}: bytes_from: path names files beside a table, and a "
                "pipeline's rows stand beside none: let the rows hold the bytes"
            )
    check_payload(declared.to_schema(), job.payload)
    return job.model_copy(update={"declared": declared})


def _first_problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what
