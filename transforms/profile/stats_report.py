"""Reports statistics as comments for a schema file, and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.yaml_lines import write_yaml
from recordmill.transforms.profile.column_stats import MAX_DISTINCT, ColumnStats, Number
from recordmill.transforms.profile.profile_input import Inferred, TableStats
from recordmill.transforms.sources.text_types import is_huge

MAX_PROPOSED = 100  # values of a text column that may be meant as classes
MAX_LISTED = 20  # values whose counts are written out
_SIZES = ("height", "width", "depth")


def header_lines(inferred: Inferred) -> list[str]:
    """Returns comment lines about the whole input."""
    stats = inferred.stats
    return [
        f"Inferred from the whole input; rows: {stats.rows:,}",
        *reject_lines(stats),
    ]


def reject_lines(stats: TableStats) -> list[str]:
    """Returns lines with the number of rows that cannot be read, and the first ones."""
    if not stats.rejected:
        return []
    lines = [f"Rows that cannot be read (convert rejects them): {stats.rejected:,}"]
    lines += [f"  {p.path}, byte {p.byte}: {p.reason}" for p in stats.rejects]
    if more := stats.rejected - len(stats.rejects):
        lines.append(f"  and {more:,} more")
    return lines


def feature_comments(inferred: Inferred) -> dict[str, list[str]]:
    """Returns comment lines about each feature, by its name."""
    return {
        spec.name: lines
        for spec in inferred.schema.features
        if (lines := _feature_lines(inferred, spec))
    }


def _feature_lines(inferred: Inferred, spec: FeatureSpec) -> list[str]:
    stats = inferred.stats.column(spec.column)
    if spec.content is Content.PICTURE:
        return _picture_lines(inferred.stats)
    if not stats.rows:
        return []
    if spec.class_names:
        return [_class_counts(spec.class_names, stats)]
    lines = [_values_line(stats)]
    if stats.missing:
        lines.append(_nulls_line(stats))
    if spec.dtype == "string" and is_huge(stats.flags):
        lines.append(
            "numbers beyond float32 (at most 3.4e38), so they stay text; to store them: "
            "{dtype: float64, stored: tensor}"
        )
    if inferred.source.infers_types and stats.dtype == "string":
        lines += _class_proposal(stats)
    return lines


def _values_line(stats: ColumnStats) -> str:
    if stats.shortest is None or stats.longest is None:
        return "no value in any row, so its type is unknown"
    words = []
    if stats.limits:
        words.append(_span(*stats.limits))
    if stats.dtype == "string":
        words.append(f"{_span(stats.shortest, stats.longest)} bytes")
    if stats.dtype == "bool":
        counts = sorted((stats.texts() or {}).items())
        words += [f"{text}: {count}" for text, count in counts]
    else:
        words.append(f"{_distinct(stats)} distinct")
    return ", ".join(words)


def _nulls_line(stats: ColumnStats) -> str:
    share = f"{100 * stats.missing / stats.rows:.1f}"
    if share == "0.0":
        share = "under 0.1"
    if share == "100.0" and stats.missing < stats.rows:
        share = "over 99.9"
    return f"missing in {stats.missing:,} of {stats.rows:,} rows ({share} %)"


def _class_proposal(stats: ColumnStats) -> list[str]:
    """Returns lines that propose classes, if few texts are in many rows."""
    texts = _few_texts(stats)
    if len(texts) < 2 or stats.rows - stats.missing < 2 * len(texts):
        return []
    lines = [f"perhaps classes: {_flow(sorted(texts))}"]
    if len(texts) <= MAX_LISTED:
        lines.append(f"rows of each: {_counts(texts)}")
    return lines


def _few_texts(stats: ColumnStats) -> Mapping[str, int]:
    texts = stats.texts() or {}
    return texts if len(texts) <= MAX_PROPOSED else {}


def _class_counts(names: Sequence[str], stats: ColumnStats) -> str:
    """Returns a line with the rows of each class; the statistics are of their indices."""
    texts = stats.texts()
    if texts is None:
        return f"more than {MAX_DISTINCT:,} classes have rows"
    counts = {name: texts.get(str(index), 0) for index, name in enumerate(names)}
    if len(counts) <= MAX_LISTED:
        return f"rows of each: {_counts(counts)}"
    rows = _span(min(counts.values()), max(counts.values()))
    return f"{len(names):,} classes of {rows} rows"


def _picture_lines(stats: TableStats) -> list[str]:
    formats = stats.column("format").texts()
    if not formats:
        return []
    lines = [f"pictures of each format: {_counts(formats)}"]
    sides = [stats.column(name).limits or (0, 0) for name in _SIZES]
    spans = [f"{n} {_span(*s)}" for n, s in zip(_SIZES, sides, strict=True)]
    lines.append(", ".join(spans))
    if all(low == high for low, high in sides):
        keys = ("height", "width", "channels")
        rule = {key: low for key, (low, _) in zip(keys, sides, strict=True)}
        lines.append(f"to reject other sizes: picture: {_flow(rule)}")
    return lines


def _span(low: Number, high: Number) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _distinct(stats: ColumnStats) -> str:
    if stats.distinct is None:
        return f"more than {MAX_DISTINCT:,}"
    return f"{stats.distinct:,}"


def _counts(counts: Mapping[str, int]) -> str:
    return _flow(dict(sorted(counts.items())))


def _flow(value: Any) -> str:
    """Returns a value as one line of YAML."""
    return write_yaml(value, flow=True).rstrip("\n")


def stats_json(inferred: Inferred) -> dict[str, Any]:
    """Returns the statistics and the schema as JSON has them."""
    stats = inferred.stats
    return {
        "rows": stats.rows,
        "rows_rejected": stats.rejected,
        "first_rejects": [
            {"uri": p.path, "position": p.byte, "reason": p.reason}
            for p in stats.rejects
        ],
        "columns": {name: _column_json(stats.columns[name]) for name in stats.columns},
        "schema": inferred.declared.model_dump(mode="json", exclude_defaults=True),
    }


def _column_json(stats: ColumnStats) -> dict[str, Any]:
    low, high = stats.limits or (None, None)
    return {
        "dtype": stats.dtype,
        "rows": stats.rows,
        "nulls": stats.missing,
        "min": _json_number(low),
        "max": _json_number(high),
        "shortest_bytes": stats.shortest,
        "longest_bytes": stats.longest,
        "distinct": stats.distinct,
        "values": dict(sorted(_few_texts(stats).items())),
    }


def _json_number(value: Number | None) -> Number | str | None:
    """Returns a number as JSON can hold it: infinity as text."""
    return str(value) if value is not None and math.isinf(value) else value
