"""Writes the rows of any pipeline as a dataset: the PTransform WriteDataset.

    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([{"text": "so", "label": 1}])
        rows | WriteDataset("out/words", {"text": "string", "label": "int64"})

Use it in place of beam.io.WriteToTFRecord. WriteDataset shuffles the records globally,
writes shards of about the same size, and publishes the dataset atomically, with a
manifest, a schema and checksums. See docs/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import signature
from os import PathLike, fspath
from typing import Any, Literal
from uuid import uuid4

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.beam_jobs.pipelines.group_by_shard import (
    TotalCombineFn,
    emit_finished_shards,
    write_shards_from_pieces,
)
from recordmill.beam_jobs.pipelines.lineage import report_lineage
from recordmill.beam_jobs.runners.embedded import is_flink
from recordmill.schemas.declared import DeclaredSchema, declare_schema, parse_declared
from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.job import (
    AUTO_VERSION,
    DEFAULT_SHARD_BYTES,
    FIRST_VERSION,
    JobSpec,
    check_splits,
    is_embedded_runner,
    parse_split_times,
)
from recordmill.schemas.job_options import (
    LoadedJob,
    Problems,
    check_options,
    create_job,
)
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.options import (
    Compression,
    Container,
    Grace,
    Payload,
    spell_options,
)
from recordmill.schemas.ranges import (
    KEY_SPACE,
    ShardPlan,
    ShardResult,
    ShardTask,
    SortedRunRef,
    SplitPlan,
)
from recordmill.schemas.schema_file import load_schema
from recordmill.schemas.source_options import PIPELINE_ROWS, SourceOptions
from recordmill.schemas.storage_options import addresses_with_secrets
from recordmill.transforms.commit.check_output import check_names
from recordmill.transforms.encode.payloads import check_payload
from recordmill.transforms.exchange.pieces import cut_block, open_piece
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.exchange.sorted_runs import Block, SortedRunFolder
from recordmill.transforms.rows.encode_rows import (
    RowsEncoder,
    RowsSummary,
    RowsTotals,
    summarize_rejects,
)
from recordmill.transforms.rows.rows_job import (
    RowsExchange,
    RowsPlan,
    begin_rows,
    context_of_rows,
    plan_rows,
    publish_rows,
    write_rejects,
)
from recordmill.transforms.storage import open_store
from recordmill.transforms.storage.lease import RunProcess
from recordmill.transforms.storage.reading import is_local, read_file
from recordmill.transforms.storage.shard_file import require_container
from recordmill.transforms.tasks.context import RunContext, ShardsToWrite
from recordmill.transforms.tasks.launches import (
    HeartbeatTimer,
    handle_task_error,
    keep_alive,
    with_heartbeat,
)
from recordmill.transforms.tasks.write_shard import write_shard


def is_embedded(pipeline: beam.Pipeline) -> bool:
    """Returns True if Beam's embedded runner, on this machine, runs the pipeline."""
    if pipeline.runner is None:
        return is_embedded_runner(pipeline.options.view_as(StandardOptions).runner)
    return is_embedded_runner(type(pipeline.runner).__name__)


def choose_rows_exchange(pipeline: beam.Pipeline) -> RowsExchange:
    """Returns the exchange for rows that a user's own steps emit.

    The embedded runner's shuffle holds all records in memory. Flink's batch runner puts
    all elements that a slot receives for a step into one bundle, and hangs after the step
    has emitted a hundred messages for that bundle (1 GB; Beam 2.62). The pipelines of
    recordmill's jobs send each input range in its own bundle. In a user's pipeline, the
    user's steps determine the bundles.
    """
    if is_embedded(pipeline) or is_flink(pipeline):
        return "scratch"
    return "engine"


AnySchema = DeclaredSchema | Schema | Mapping[str, Any] | str | PathLike[str]
AnySplits = Mapping[str, str | float | Fraction] | Sequence[str]


def _parse_split_shares(arguments: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the shares of the splits, or None if a column names the splits."""
    splits, column = arguments["splits"], arguments["split_column"]
    if isinstance(splits, Mapping):
        return {name: str(share) for name, share in splits.items()}
    if column is not None and (not splits or isinstance(splits, str)):
        raise UsageError(
            "WriteDataset: split_column needs the names of the splits before the first "
            "row: pass splits=['train', 'test']"
        )
    if column is not None or splits is None:
        return None
    if arguments["split_by_time"] is not None:
        return dict.fromkeys(splits, "")  # an invalid combination, reported later
    raise UsageError(
        "WriteDataset: splits without shares require split_column: pass shares like "
        "splits={'train': 0.9, 'test': 0.1}"
    )


def _make_rows_job(arguments: Mapping[str, Any]) -> LoadedJob:
    """Returns the job of the arguments, with the checks that a job file gets.

    If a column names the split of each row, the splits have equal shares without meaning.
    """
    for name, is_wrong, expected in (
        (
            "exchange",
            arguments["exchange"] == "reference",
            "'auto', 'scratch' or 'engine'",
        ),
        ("version", arguments["version"] == AUTO_VERSION, "a version like 1.0.0"),
        ("scratch", not is_local(arguments["scratch"]), "a local folder"),
    ):
        if is_wrong:
            argument = arguments[name]
            raise UsageError(f"WriteDataset: {name}={argument!r}: expected {expected}")
    job_options = {
        name: value for name, value in arguments.items() if value != _ARGUMENTS[name]
    }
    job_options |= {"source": PIPELINE_ROWS, "inputs": [PIPELINE_ROWS]}
    for name in {"shard_size", "max_rejects"} & job_options.keys():
        job_options[name] = str(job_options[name])
    if "storage" in job_options:
        job_options["storage"] = {"output": dict(job_options["storage"])}
    job_options.pop("splits", None)
    if (shares := _parse_split_shares(arguments)) is not None:
        job_options["splits"] = shares
    problems: Problems = {}
    checked_options = check_options(
        job_options, {PIPELINE_ROWS: SourceOptions}, problems
    )
    for option_path, problem in problems.items():
        location, problem = (
            ".".join(map(str, option_path)),
            spell_options(problem, "python"),
        )
        if not problem.startswith(
            f"{location}="
        ):  # some problems begin with their option
            problem = f"{location}: {problem}"
        raise UsageError(f"WriteDataset: {problem}")
    names = arguments["splits"] if arguments["split_column"] is not None else ()
    if arguments["split_by_time"] is not None:
        names = parse_split_times(arguments["split_by_time"]).names
    if names:
        share = f"1/{len(names)}"
        try:
            checked_options["splits"] = check_splits((name, share) for name in names)
        except ValueError as error:
            raise UsageError(f"WriteDataset: splits: {error}") from error
    return create_job(checked_options, "python", read_file)


def to_declared_schema(schema: Any) -> DeclaredSchema:
    """Returns an argument as a declared schema."""
    if isinstance(schema, DeclaredSchema):
        return schema
    if isinstance(schema, Schema):
        return declare_schema(schema)
    if not isinstance(schema, Mapping):
        raise UsageError(
            f"WriteDataset: schema of type {type(schema).__name__}; expected a path, a "
            "mapping of features, a DeclaredSchema or a Schema"
        )
    return parse_declared({"features": dict(schema)}, "the schema of WriteDataset")


def add_schema(job: JobSpec, declared: DeclaredSchema) -> JobSpec:
    """Returns the job with its schema; raises SchemaError if rows cannot have it."""
    for name, feature in declared.features.items():
        if feature.bytes_from:
            raise SchemaError(
                f"feature {name!r}: bytes_from: path reads files next to a table, "
                "which the rows of a pipeline do not have; store the bytes in the rows"
            )
    check_payload(declared.to_schema(), job.payload)
    return job.model_copy(update={"declared": declared})


#     begin -> replaces (the first step; writes the heartbeat)
#
#     rows -> encode --+-> summaries -> totals -> plan ------------+
#                      |                                           v
#                      +-> sorted runs (scratch) -------------> write shards -> publish
#                      +-> pieces (engine) -> cut by plan -> group by shard -^
#
# With the scratch exchange, only summaries pass through the runner. With the engine
# exchange, the encoded rows pass through it twice: the engine keeps them until the plan
# is complete, because the plan needs the sizes of all rows, and then shuffles them.

SUMMARIES, REJECTS = "summaries", "rejects"
REJECT_FILES = 16  # each file is sorted in memory

_SORTED_RUN_BYTES = 64 << 20  # records per sorted run, with the scratch exchange
_CUT_BYTES = 16 << 20  # records per cut into pieces, with the engine exchange

Piece = tuple[int, bytes]
"""(split index, records), and after the plan (shard number, records)."""


class EncodeRows(beam.DoFn):
    """A DoFn that encodes elements as records.

    It emits pieces (only with the engine exchange) and two tagged outputs: RowsSummary
    objects (SUMMARIES), and rejects as (number of the rejects file, line) (REJECTS).

    A bundle can hold the whole input and take hours, so each element renews the
    heartbeat.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def start_bundle(self) -> None:
        # A failed bundle can have left rows in these attributes.
        self._encoder = RowsEncoder(self._context.job, self._context.bucket_bits)
        self._blocks: list[Block] = []
        self._summaries: list[RowsSummary] = []
        self._num_bytes = 0
        self._timer = HeartbeatTimer(self._context.workspace)

    def process(
        self, element: object, replaces: str
    ) -> Iterator[Piece | TaggedOutput[str, object]]:
        # `replaces` is the output of the first step. Its use makes this step wait for it.
        self._timer.tick()
        try:
            for block, summary in self._encoder.add(element):
                yield from self._buffer(block, summary)
            yield from self._emit_rejects()
        except Exception as error:
            handle_task_error(self._context.workspace, error)
            raise

    def finish_bundle(
        self,
    ) -> Iterator[WindowedValue | TaggedOutput[str, WindowedValue]]:
        try:
            for block, summary in self._encoder.flush():
                for output in self._buffer(block, summary):
                    yield _set_global_window(output)
            for output in (*self._flush(), *self._emit_rejects()):
                yield _set_global_window(output)
        except Exception as error:
            handle_task_error(self._context.workspace, error)
            raise

    def _buffer(
        self, block: Block, summary: RowsSummary
    ) -> Iterator[Piece | TaggedOutput[str, object]]:
        self._blocks.append(block)
        self._summaries.append(summary)
        self._num_bytes += int(block.planned_bytes.sum())
        limit = _SORTED_RUN_BYTES if self._context.exchange == "scratch" else _CUT_BYTES
        if self._num_bytes >= limit:
            yield from self._flush()

    def _flush(self) -> Iterator[Piece | TaggedOutput[str, object]]:
        """Writes the buffered records to a sorted run, or emits them as pieces."""
        if not self._blocks:
            return
        summaries, self._summaries, self._num_bytes = self._summaries, [], 0
        runs: tuple[SortedRunRef, ...] = ()
        num_splits = self._context.num_splits
        if self._context.exchange == "scratch":
            workspace = self._context.workspace
            if not workspace.is_in_store:
                workspace.local_store("runs").make_folder("runs")
            runs = (
                workspace.sorted_run_folder.save(uuid4().hex, self._blocks, num_splits),
            )
            self._blocks.clear()
        else:
            # Unique, even among the pieces of a repeated bundle.
            origin = (uuid4().int >> 64, 0)
            block = Block.join_blocks(self._blocks)
            whole = SplitPlan("", (0, KEY_SPACE), (1,), (1,))  # a split in one shard
            yield from cut_block(block, ShardPlan((whole,) * num_splits), origin)
        for summary in summaries:
            yield TaggedOutput(SUMMARIES, summary)
        if runs:
            yield TaggedOutput(SUMMARIES, RowsSummary(runs=runs))

    def _emit_rejects(self) -> Iterator[TaggedOutput[str, object]]:
        rejects = self._encoder.take_rejects()
        if not rejects:
            return
        for digest, line in rejects:
            yield TaggedOutput(REJECTS, (digest[0] % REJECT_FILES, line))
        yield TaggedOutput(SUMMARIES, summarize_rejects(rejects))


def _set_global_window(
    output: Piece | TaggedOutput[str, object],
) -> WindowedValue | TaggedOutput[str, WindowedValue]:
    if isinstance(output, TaggedOutput):
        windowed_value = GlobalWindows.windowed_value(output.value)
        return TaggedOutput(output.tag, windowed_value)
    return GlobalWindows.windowed_value(output)


def _write_shard_from_runs(
    task: ShardTask, plan: RowsPlan, runs: list[SortedRunRef], folder: SortedRunFolder
) -> ShardResult:
    context = plan.shards_to_write.context
    with with_heartbeat(context.workspace):
        return write_shard(context, task, runs, folder=folder)


def _empty_row_totals(num_splits: int, bucket_bits: int) -> RowsTotals:
    return RowsTotals(Histogram.empty(num_splits, bucket_bits))


def cut_piece(piece: Piece, to_write: ShardsToWrite) -> Iterator[Piece]:
    """Cuts a piece of a split at the boundaries of the shards."""
    if not to_write.plan.num_shards:
        return
    keep_alive(to_write.context.workspace)
    block, head = open_piece(piece[1], piece[0])
    yield from cut_block(block, to_write.plan, head.sort_key, to_write.finished_shards)


class WriteDataset(beam.PTransform[PCollection[Any], PCollection[Manifest]]):
    """Writes a bounded collection as one dataset; emits its Manifest, once.

    Elements can be mixed:

    - dicts and pyarrow.RecordBatch (or Table): need a schema, and are converted like
      the columns of a CSV file. Columns that the schema does not name are dropped.
    - tf.train.Example (from TensorFlow or another library) or serialized examples:
      written unchanged. With a schema, each example is checked. Without a schema, the
      features are inferred.
    - other bytes: with payload="raw" and no schema, written unchanged and unchecked.

    A seeded hash of the content determines the position of a record, so the same rows
    produce the same bytes in any order, in any bundles and on any runner. Duplicates are
    kept.
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
          schema: schema of the records: path of a schema file, {name: declaration} as in
            a schema file, a DeclaredSchema or a Schema.
          name: name of the dataset; by default the last segment of `output`.
          version: version of the dataset, three numbers like "1.0.0".
          splits: share of each split by name; by default all rows are "train". With
            split_column, only the names.
          split_by: a column (or a feature of examples): rows with equal values are kept
            in one split. By default only equal rows are kept in one split.
          split_column: a column (or feature) that names the split of each row, one of
            `splits`.
          split_by_time: a column (or feature), and splits with the times or numbers
            between them, like "date=train,2026-01-01,test".
          shards: number of shards of each split; by default computed from `shard_size`.
          shard_size: target size of a shard in bytes, or text like "128MiB".
          seed: seed of the order and the splits; another seed changes both.
          compression: compression of the shards, "none" or "gzip".
          gzip_level: from 1 (fastest) to 9 (smallest).
          index: whether to write SHARD.idx next to each shard, with which readers find
            single records.
          container: file format of the shards, "tfrecord" or "array_record".
          payload: content of a record, which is also the expected content of elements
            that are bytes.
          max_rejects: number of rows that may be rejected, or a share like "0.5%".
          overwrite: whether to replace another dataset in `output`.
          grace: how long the files of a replaced dataset stay for its readers:
            "next-run" keeps them until the next run or `recordmill clean`, "0" removes
            them at once.
          exchange: how records reach their shards: "scratch" through files, "engine"
            through the runner's shuffle. The bytes are the same. "auto" depends on the
            runner.
          scratch: folder for temporary sorted files, accessible to all workers; by
            default inside `output`.
          storage: options of the file system that holds `output`, without secrets.

        Raises:
          UsageError: an argument is not valid.
          SchemaError: the schema is not valid, or does not suit the payload.
        """
        local_variables = locals()  # before further variables are bound
        arguments = {name: local_variables[name] for name in _ARGUMENTS}
        super().__init__()
        arguments |= {"output": fspath(output), "scratch": fspath(scratch)}
        self._schema = fspath(schema) if isinstance(schema, PathLike) else schema
        texts = arguments | {"schema": self._schema}
        for (argument, *_), refusal in addresses_with_secrets(texts):
            raise UsageError(f"WriteDataset: {argument}: {refusal}")
        if schema is None and payload not in ("example", "raw"):
            raise UsageError(
                f"WriteDataset: payload={payload!r} needs a schema: pass schema="
            )
        loaded = _make_rows_job(arguments)
        self._job, self._options = loaded.job, loaded.options
        if not isinstance(self._schema, str | None):
            self._job = add_schema(self._job, to_declared_schema(self._schema))
        self._store = open_store(self._options.output, self._options.storage.output)

    def expand(self, rows: PCollection[Any]) -> PCollection[Manifest]:
        if not rows.is_bounded:
            raise UsageError(
                f"WriteDataset({self._options.output!r}): the collection is unbounded; "
                "expected a bounded one, because a dataset is published once, after "
                "its last row"
            )
        context = self._make_context(rows.pipeline)
        create_totals = partial(
            _empty_row_totals, context.num_splits, context.bucket_bits
        )
        begin = rows.pipeline | "Begin" >> beam.Create([None], reshuffle=False)
        # The embedded runner runs in this process.
        process = RunProcess.current() if is_embedded(rows.pipeline) else None
        replaces = AsSingleton(
            begin | "BeginHeartbeat" >> beam.Map(begin_rows, context, process)
        )
        encoded = (
            rows
            | "RemoveWindows" >> beam.WindowInto(GlobalWindows())
            | "EncodeRows"
            >> beam.ParDo(EncodeRows(context), replaces).with_outputs(
                SUMMARIES, REJECTS, main="pieces"
            )
        )
        summaries = encoded[SUMMARIES]  # RowsSummary
        plan = (
            summaries
            | "SumSummaries" >> beam.CombineGlobally(TotalCombineFn(create_totals))
            | "PlanShards" >> beam.Map(plan_rows, context, replaces)  # RowsPlan
        )
        if context.exchange == "scratch":
            runs = summaries | "ListRuns" >> beam.FlatMap(lambda part: part.runs)
            shards = (
                plan
                | "ListTasks"
                >> beam.FlatMap(lambda plan: plan.shards_to_write.plan.tasks())
                | "SpreadTasks" >> beam.Reshuffle()  # ShardTask
                | "WriteShards"
                >> beam.Map(
                    _write_shard_from_runs,
                    plan=AsSingleton(plan),
                    runs=AsList(runs),
                    folder=context.workspace.sorted_run_folder,
                )
            )
        else:
            to_write = plan | "ListShards" >> beam.Map(
                lambda plan: plan.shards_to_write
            )
            cut = encoded["pieces"] | "CutPieces" >> beam.FlatMap(
                cut_piece, to_write=AsSingleton(to_write)
            )
            finished = to_write | "ListFinished" >> beam.FlatMap(emit_finished_shards)
            shards = write_shards_from_pieces(
                (cut, finished) | beam.Flatten(), to_write
            )
        # encoded[REJECTS]: (number of a rejects file, line)
        reject_totals = (
            encoded[REJECTS]
            | "SetType"
            >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
            | "GroupByFile" >> beam.GroupByKey()
            | "WriteRejects" >> beam.Map(write_rejects, plan=AsSingleton(plan))
        )
        return begin | "PublishDataset" >> beam.Map(
            _publish,
            context,
            plan=AsSingleton(plan),
            shards=AsList(shards),
            rejects=AsList(reject_totals),
        )

    def _make_context(self, pipeline: beam.Pipeline) -> RunContext:
        job, options = self._job, self._options
        if isinstance(self._schema, str):
            schema_bytes = read_file(self._schema)
            job = add_schema(job, load_schema(schema_bytes, self._schema))
        check_names(job, self._store)
        require_container(job.container)
        if options.exchange == "auto":
            options = replace(options, exchange=choose_rows_exchange(pipeline))
        remote = not is_embedded(pipeline)
        return context_of_rows(job, self._store, options, remote=remote)


def _publish(_: object, context: RunContext, **results: Any) -> Manifest:
    report_lineage(range_findings=context.workspace.store.uri)
    return publish_rows(None, context, **results)


_ARGUMENTS = {
    name: parameter.default
    for name, parameter in signature(WriteDataset.__init__).parameters.items()
    if name not in ("self", "schema")
}
