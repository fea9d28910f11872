"""Writes the rows of any pipeline as a dataset: the PTransform WriteDataset.

    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([{"text": "so", "label": 1}])
        rows | WriteDataset("out/words", {"text": "string", "label": "int64"})

Use it in place of beam.io.WriteToTFRecord: records are shuffled globally, in shards of
about the same size, and published all together or not at all, with a manifest, a schema
and checksums. See docs/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, Literal, get_args
from uuid import uuid4

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows

from recordmill.beam_jobs.pipelines.rows_exchange import exchange_for, is_embedded
from recordmill.beam_jobs.pipelines.write_arguments import (
    AnySchema,
    AnySplits,
    declared_of,
    first_problem,
    splits_of,
    with_schema,
)
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
from recordmill.schemas.errors import UsageError
from recordmill.schemas.job.job_spec import (
    DEFAULT_SHARD_BYTES,
    FIRST_VERSION,
    Compression,
    Container,
    JobSpec,
    Payload,
    RejectLimit,
    Sharding,
    identifier_from,
)
from recordmill.schemas.job.run_options import Grace
from recordmill.schemas.job.source_options import PIPELINE_ROWS
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.parsing.schema_file import load_schema
from recordmill.schemas.reject_totals import NO_REJECTS, RejectTotals
from recordmill.schemas.sizes import parse_size
from recordmill.transforms.commit.name_limits import check_names
from recordmill.transforms.rows.row_summary import rows_bucket_bits
from recordmill.transforms.rows.rows_job import (
    RowsJob,
    RowsPlan,
    check_output_early,
    plan_rows,
    publish_rows,
)
from recordmill.transforms.storage import Preflight, open_store
from recordmill.transforms.storage.array_record import require_container
from recordmill.transforms.storage.reading import is_local, read_file


class WriteDataset(beam.PTransform[PCollection[Any], PCollection[Manifest]]):
    """Writes a bounded collection as one dataset; emits its Manifest, once.

    Elements can be mixed:

    - dicts and pyarrow.RecordBatch (or Table): need a schema, and are converted like
      the columns of a CSV file. Columns that it does not name are left out.
    - tf.train.Example (of TensorFlow or another library) or serialized examples:
      written unchanged. With a schema each is checked; without one the features are
      inferred.
    - other bytes: with payload="raw" and no schema, written unchanged and unchecked.

    A seeded hash of its content decides where a record goes, so the same rows give the
    same bytes in any order, in any bundles and on any runner. Duplicates are kept.
    """

    def __init__(
        self,
        output: str | PathLike[str],
        schema: AnySchema | None = None,
        *,
        name: str = "",
        version: str = FIRST_VERSION,
        splits: AnySplits | None = None,
        split_by: str | None = None,
        split_column: str | None = None,
        split_by_time: str | None = None,
        split_exact: bool = False,
        stratify_by: str | None = None,
        shards: int | None = None,
        shard_size: int | str = DEFAULT_SHARD_BYTES,
        seed: int = 0,
        compression: Compression = "none",
        gzip_level: int = 6,
        index: bool = False,
        container: Container = "tfrecord",
        payload: Payload = "example",
        max_rejects: int | str = 0,
        overwrite: bool = False,
        grace: Grace = "next-run",
        exchange: Literal["auto", "scratch", "engine"] = "auto",
        scratch: str | PathLike[str] = "",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Checks the arguments; the output is accessed when the pipeline runs.

        Args:
          output: folder of the dataset, a path or a URL.
          schema: of the records: path of a schema file, {name: declaration} as in such
            a file, or a DeclaredSchema or Schema.
          name: of the dataset; by default the last part of `output`.
          version: of the dataset, three numbers like "1.0.0".
          splits: share of each split by name; by default all rows are "train". With
            split_column the names alone.
          split_by: a column (or a feature of examples): rows with equal values are kept
            in one split. By default equal rows are.
          split_column: a column (or feature) that names the split of each row, one of
            `splits`.
          split_by_time: a column (or feature), and splits with the times or numbers
            between them, like "date=train,2026-01-01,test".
          split_exact: not possible here; the error says why, and what is.
          stratify_by: the same.
          shards: number of shards of each split; by default chosen by `shard_size`.
          shard_size: bytes of a shard, or text like "128MiB".
          seed: of the order and the splits; another seed changes both.
          compression: of the shards, "none" or "gzip".
          gzip_level: from 1, fast, to 9, small.
          index: whether to write SHARD.idx beside each shard, by which readers find
            single records.
          container: file format of the shards, "tfrecord" or "array_record".
          payload: what a record holds; what elements that are bytes are taken for.
          max_rejects: rows that may be rejected, a count or a share like "0.5%".
          overwrite: whether another dataset in `output` may be replaced.
          grace: how long the files of a replaced dataset stay for its readers:
            "next-run", until the next run or `recordmill clean`, or "0", not at all.
          exchange: how records reach their shards: "scratch" through files, "engine"
            through the runner's shuffle; the bytes are the same. "auto" chooses by the
            runner.
          scratch: folder for temporary sorted files that all workers can reach; by
            default inside `output`.
          storage: options of the file system of `output`, without secrets.

        Raises:
          UsageError: an argument is not valid.
          SchemaError: the schema is not valid, or not for this payload.
        """
        super().__init__()
        self._output = fspath(output)
        self._schema = fspath(schema) if isinstance(schema, PathLike) else schema
        self._overwrite = overwrite
        self._grace = grace
        self._exchange = exchange
        self._scratch = fspath(scratch)
        self._storage = StorageOptions.of(storage or {})
        if exchange not in ("auto", "scratch", "engine"):
            raise UsageError(
                f"WriteDataset: exchange={exchange!r}: expected 'auto', 'scratch' or "
                "'engine'"
            )
        if grace not in get_args(Grace):
            raise UsageError(
                f"WriteDataset: grace={grace!r}: expected 'next-run' or '0'"
            )
        if not is_local(self._scratch):
            raise UsageError(
                f"WriteDataset: scratch={self._scratch!r}: expected a local folder"
            )
        if schema is None and payload not in ("example", "raw"):
            raise UsageError(
                f"WriteDataset: payload={payload!r} needs a schema: give schema="
            )
        try:
            if isinstance(shard_size, str):
                shard_size = parse_size(shard_size)
            self._job = JobSpec(
                source=PIPELINE_ROWS,
                name=name or identifier_from(self._output.rstrip("/").split("/")[-1]),
                version=version,
                splits=splits_of(
                    splits,
                    split_by=split_by,
                    split_column=split_column,
                    split_by_time=split_by_time,
                    split_exact=split_exact,
                    stratify_by=stratify_by,
                ),
                split_by=split_by,
                split_column=split_column,
                split_by_time=split_by_time,
                sharding=Sharding(num_shards=shards)
                if shards is not None
                else Sharding(shard_bytes=shard_size),
                seed=seed,
                compression=compression,
                gzip_level=gzip_level,
                index=index,
                container=container,
                max_rejects=RejectLimit(text=str(max_rejects)),
                payload=payload,
            )
        except ValueError as error:
            raise UsageError(f"WriteDataset: {first_problem(error)}") from error
        if not isinstance(self._schema, str | None):
            self._job = with_schema(self._job, declared_of(self._schema))
        self._store = open_store(self._output, self._storage)

    def expand(self, rows: PCollection[Any]) -> PCollection[Manifest]:
        if not rows.is_bounded:
            raise UsageError(
                f"WriteDataset({self._output!r}): the collection is unbounded; expected a "
                "bounded one, as a dataset is published once, after its last row"
            )
        rows_job = self._rows_job(rows.pipeline)
        begin = rows.pipeline | "Begin" >> beam.Create([None], reshuffle=False)
        preflight = begin | "CheckOutput" >> beam.Map(
            _check_output, rows_job
        )  # Preflight
        encoded = (
            rows
            | "RemoveWindows" >> beam.WindowInto(GlobalWindows())
            | "EncodeRows"
            >> beam.ParDo(EncodeRows(rows_job)).with_outputs(
                SUMMARIES, REJECTS, main="pieces"
            )
        )
        summaries = encoded[SUMMARIES]  # RowsSummary
        plan = (
            summaries
            | "SumSummaries"
            >> beam.CombineGlobally(
                SumRows(len(rows_job.split_names), rows_job.bucket_bits)
            )
            | "PlanShards" >> beam.Map(plan_rows, rows_job)  # RowsPlan
        )
        write = (
            WriteFromRuns(rows_job, summaries)
            if rows_job.exchange == "scratch"
            else WriteFromPieces(encoded["pieces"])
        )
        shards = plan | "WriteShards" >> write  # ShardResult
        # encoded[REJECTS]: (number of a rejects file, line)
        reject_totals = (
            encoded[REJECTS]
            | "SetType"
            >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
            | "GroupByFile" >> beam.GroupByKey()
            | "WriteRejects" >> beam.Map(write_reject_file, plan=AsSingleton(plan))
        )
        return begin | "PublishDataset" >> beam.Map(
            _publish,
            rows_job,
            preflight=AsSingleton(preflight),
            plan=AsSingleton(plan),
            shards=AsList(shards),
            reject_totals=AsList(reject_totals),
        )

    def _rows_job(self, pipeline: beam.Pipeline) -> RowsJob:
        job = self._job
        if isinstance(self._schema, str):
            data = read_file(self._schema)
            job = with_schema(job, load_schema(data, self._schema))
        check_names(job, self._store)
        require_container(job.container)
        return RowsJob(
            job=job,
            store=self._store,
            bucket_bits=rows_bucket_bits(job),
            exchange=exchange_for(pipeline)
            if self._exchange == "auto"
            else self._exchange,
            overwrite=self._overwrite,
            grace=self._grace,
            run_id=uuid4().hex[:11],
            scratch=self._scratch,
            remote=not is_embedded(pipeline),
        )


def _check_output(_: None, rows_job: RowsJob) -> Preflight:
    return check_output_early(rows_job)


def _publish(
    _: None,
    rows_job: RowsJob,
    preflight: Preflight,
    plan: RowsPlan,
    shards: list[ShardResult],
    reject_totals: list[RejectTotals],
) -> Manifest:
    rejects = sum(reject_totals, NO_REJECTS)
    return publish_rows(rows_job, preflight, plan, shards, rejects)
