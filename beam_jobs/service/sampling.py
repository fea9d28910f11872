"""Determines, before the run, the rows that a job keeps, copies or weighs.

For that, it counts the rows of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from recordmill.beam_jobs.service.label_split import (
    WINDOW_GROWTH,
    label_class_names,
    require_class_column,
    too_many_values_message,
)
from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.job import JobSpec, parse_balance
from recordmill.schemas.options import WEIGHT
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.exact_splits import WIDTH, RankSketch, SmallestKeys
from recordmill.transforms.exchange.keys import sample_hashes, text_hash
from recordmill.transforms.sources.base import Rows, RowSource
from recordmill.transforms.sources.file_splits import TRAIN_NAMES
from recordmill.transforms.sources.label_split import (
    MISSING_KEY,
    find_class_keys,
    has_decimal_commas,
)
from recordmill.transforms.sources.sampling import BalancedClasses, SampledRows
from recordmill.transforms.statistics.input_statistics import count_rows
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import keys_and_splits

_DRAW_SPACE = 1 << 64
ComputeDraws = Callable[[InputRange, Rows], tuple[Rows, U64]]


def add_sampling(
    job: JobSpec, source: RowSource, ranges: Sequence[InputRange], workers: int
) -> RowSource:
    """Returns the rows that a job keeps, with their weights; add_copies adds copies."""
    sampled, facts, share = SampledRows(source, job), [], Fraction(1)
    if job.sample is not None:
        share = Fraction(job.sample)
        below = None if share == 1 else int(share * _DRAW_SPACE)
        sample_text = f"{float(share * 100):g}% of the rows, chosen by seed {job.seed}"
        facts.append(("sample", sample_text))
        sampled = replace(sampled, sample_hash_below=below)
    if limit := job.limit:
        smallest_keys = count_rows(
            *(sampled, ranges, None, ""),
            workers=workers,
            sketch=lambda _: SmallestKeys(limit),
            draws_of=lambda input_range, rows: (
                rows,
                rows.order_keys(input_range, job),
            ),
        ).get(None, SmallestKeys(limit))
        num_kept_rows = min(limit, smallest_keys.count)
        facts.append(
            (
                "limit",
                f"the first {num_kept_rows:,} of {format_count(smallest_keys.count, 'row')}",
            )
        )
        share *= Fraction(num_kept_rows, max(1, smallest_keys.count))
        sampled = replace(sampled, last_key=smallest_keys.largest_key())
    if job.balance is not None and not job.copies_rows:
        if job.balance.endswith("=weights") and WEIGHT in source.columns().names:
            raise UsageError(
                f"`balance` {job.balance}: the input already has a column {WEIGHT}. "
                "Rename it in the input, or leave out `balance`"
            )

        def compute_hashes(_: object, rows: Rows) -> tuple[Rows, U64]:
            return rows, sample_hashes(rows.origins, job.seed)

        balance, counts = _find_balance(job, sampled, ranges, workers, compute_hashes)
        facts.append(_balance_fact(job, source, counts))
        if balance.weights is None:
            share *= Fraction(min(counts.values()) * len(counts), sum(counts.values()))
        sampled = replace(sampled, balance=balance)
    return replace(sampled, share=float(share), report_lines=tuple(facts))


def add_copies(
    context: RunContext, ranges: Sequence[InputRange], workers: int
) -> tuple[RunContext, InputReport]:
    """Returns a run that copies rows of the split train, and its input report."""
    job, names = context.job, context.split_names
    train = next((n for n in names if n.casefold() in TRAIN_NAMES), None)
    if train is None:
        raise UsageError(
            f"`balance` {job.balance}: only rows of the split train are repeated, but "
            f"the splits are {', '.join(names)}. Name one of them train, or undersample"
        )
    split = names.index(train)

    def draws_of(input_range: InputRange, rows: Rows) -> tuple[Rows, U64]:
        _, splits = keys_and_splits(context, input_range, rows)
        train_rows = rows.take_rows(np.flatnonzero(splits == split))
        return train_rows, sample_hashes(train_rows.origins, job.seed)

    balance, counts = _find_balance(job, context.source, ranges, workers, draws_of)
    balance_fact = _balance_fact(job, context.source, counts)
    copies = replace(balance, split=split)
    return replace(context, balanced_classes=copies), InputReport((balance_fact,))


def _find_balance(
    job: JobSpec,
    source: RowSource,
    ranges: Sequence[InputRange],
    workers: int,
    draws_of: ComputeDraws,
) -> tuple[BalancedClasses, Mapping[str, int]]:
    """Counts the rows of each class; computes the draws that limit kept or copied rows.

    Returns the balanced classes, and the number of rows of each class. With 5 rows of cat
    and 2 of dog, undersampling keeps two rows of each, with the smallest draws.
    Oversampling writes 5 rows of dog: two copies of each row, and a third copy of the row
    with the smallest draw.
    """
    column, rule = parse_balance(str(job.balance))
    if job.map is not None and source.infers_types:
        raise UsageError(
            "`balance` with `map` needs an input whose columns have types; the types "
            f"of {job.source} are only known after reading its rows. Leave out one of "
            "them, or convert the table to Parquet"
        )
    require_class_column("balance", column, source.columns())
    comma = has_decimal_commas(job, source, column)

    def counted(sketch: Callable[[str | None], RankSketch]) -> dict[str, RankSketch]:
        sketches = count_rows(
            *(source, ranges, column, too_many_values_message("balance", column)),
            workers=workers,
            sketch=sketch,
            draws_of=draws_of,
            values_of=partial(find_class_keys, decimal_comma=comma),
        )
        return {
            key or MISSING_KEY: class_sketch for key, class_sketch in sketches.items()
        }

    counts = {
        key: class_sketch.count
        for key, class_sketch in counted(lambda _: RankSketch()).items()
    }
    if not counts:
        raise InputError(f"`balance` {column}: no rows to balance")
    target = max(counts.values()) if rule == "oversample" else min(counts.values())
    ranks = {key: 0 if rule == "weights" else target % n for key, n in counts.items()}
    share = Fraction(job.sample or 1)  # the draws of sampled rows are below this share
    below, width = {key: [0] for key in counts}, WIDTH
    while any(ranks.values()):

        def sketch(key: str | None) -> RankSketch:
            key = key or MISSING_KEY
            end = ranks.get(key, 0) * share / counts.get(key, 1)
            return RankSketch((int(end * _DRAW_SPACE),), width)  # noqa: B023

        limits = {
            k: class_sketch.limits([ranks[k]])
            for k, class_sketch in counted(sketch).items()
        }
        if None not in limits.values():
            below = {key: limit for key, limit in limits.items() if limit is not None}
            break
        width *= WINDOW_GROWTH
    keys = sorted(counts, key=text_hash)
    times = [1 if rule == "weights" else target // counts[key] for key in keys]
    weights = None
    if rule == "weights":
        total = sum(counts.values()) / len(counts)
        weights = np.array([total / counts[key] for key in keys], np.float32)
    balance = BalancedClasses(
        *(column, comma, job.seed),
        class_hashes=np.array([text_hash(key) for key in keys], np.uint64),
        num_copies=np.array(times, np.int64),
        extra_copy_below=np.array([below[key][0] for key in keys], np.uint64),
        weights=weights,
    )
    return balance, counts


def _balance_fact(
    job: JobSpec, source: RowSource, counts: Mapping[str, int]
) -> tuple[str, str]:
    """Returns the fact about balanced classes for the input report."""
    column, rule = parse_balance(str(job.balance))
    names = label_class_names(source.source_before_sampling()[0], column)
    class_texts = []
    for key in sorted(counts, key=lambda key: (-counts[key], key)):
        name = names[int(key)] if names and key.isdigit() else key or "no value"
        class_texts.append(f"{name} {counts[key]:,}")
    rule_texts = {
        "undersample": f"keeps {min(counts.values()):,} rows of each class",
        "oversample": f"repeats rows in train up to {max(counts.values()):,} rows of "
        "each class",
        "weights": f"weighted by {WEIGHT}",
    }
    description = (
        f"{format_count(len(counts), 'class')} of {column}, {rule_texts[rule]}; rows: "
    )
    return "balance", description + format_names(class_texts)
