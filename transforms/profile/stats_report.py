"""What a look at the input found, in words for a schema file and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.schemas.features.feature import Content, FeatureSpec
from recordmill.schemas.parsing.yaml_text import write_yaml
from recordmill.transforms.profile.column_stats import MAX_DISTINCT, ColumnStats, Number
from recordmill.transforms.profile.profile_input import Inferred, TableStats

MAX_PROPOSED = 100  # values of a text column that may be meant as classes
MAX_LISTED = 20  # values whose counts are written out
_MAX_FLOAT32 = 3.4028235677973366e38  # what lies at or above rounds to infinity
_SIZES = ("height", "width", "depth")


def head_of(inferred: Inferred) -> list[str]:
    """What is to say of the whole input."""
    facts = inferred.facts
    return [
        f"Inferred from the whole input; rows: {facts.rows:,}",
        *reject_lines(facts),
    ]


def reject_lines(facts: TableStats) -> list[str]:
    """How many rows cannot be read, and where the first of them stand."""
    if not facts.rejected:
        return []
    lines = [f"Rows that cannot be read (convert rejects them): {facts.rejected:,}"]
    lines += [f"  {p.path}, byte {p.byte}: {p.reason}" for p in facts.places]
    if more := facts.rejected - len(facts.places):
        lines.append(f"  and {more:,} more")
    return lines


def comments_of(inferred: Inferred) -> dict[str, list[str]]:
    """What is to say of each feature, by its name."""
    return {
        spec.name: lines
        for spec in inferred.schema.features
        if (lines := _lines(inferred, spec))
    }


def _lines(inferred: Inferred, spec: FeatureSpec) -> list[str]:
    facts = inferred.facts.column(spec.column)
    if spec.content is Content.PICTURE:
        return _picture_lines(inferred.facts)
    if not facts.rows:
        return []
    if spec.class_names:
        return [_class_counts(spec.class_names, facts)]
    lines = [_values_line(facts)]
    if facts.nulls:
        lines.append(_nulls_line(facts))
    beyond = [value for value in facts.limits or () if _is_beyond_float32(value)]
    if spec.dtype == "float32" and beyond:
        lines.append("beyond float32 (at most 3.4e38): convert rejects such rows")
    if inferred.source.infers_types and facts.dtype == "string":
        lines += _proposal(facts)
    return lines


def _values_line(facts: ColumnStats) -> str:
    if facts.shortest is None or facts.longest is None:
        return "no value in any row: nothing tells its type"
    words = []
    if facts.limits:
        words.append(_span(*facts.limits))
    if facts.dtype == "string":
        words.append(f"{_span(facts.shortest, facts.longest)} bytes")
    if facts.dtype == "bool":
        counts = sorted((facts.texts() or {}).items())
        words += [f"{text}: {count}" for text, count in counts]
    else:
        words.append(f"{_distinct(facts)} distinct")
    return ", ".join(words)


def _nulls_line(facts: ColumnStats) -> str:
    share = f"{100 * facts.nulls / facts.rows:.1f}"
    if share == "0.0":
        share = "under 0.1"
    if share == "100.0" and facts.nulls < facts.rows:
        share = "over 99.9"
    return f"missing in {facts.nulls:,} of {facts.rows:,} rows ({share} %)"


def _proposal(facts: ColumnStats) -> list[str]:
    """Text that comes again and again may be the names of classes."""
    texts = _few_texts(facts)
    if len(texts) < 2 or facts.rows - facts.nulls < 2 * len(texts):
        return []
    lines = [f"perhaps classes: {_flow(sorted(texts))}"]
    if len(texts) <= MAX_LISTED:
        lines.append(f"rows of each: {_counts(texts)}")
    return lines


def _few_texts(facts: ColumnStats) -> Mapping[str, int]:
    texts = facts.texts() or {}
    return texts if len(texts) <= MAX_PROPOSED else {}


def _class_counts(names: Sequence[str], facts: ColumnStats) -> str:
    """How the rows are spread over classes; the facts are those of their indices."""
    texts = facts.texts()
    if texts is None:
        return f"more than {MAX_DISTINCT:,} classes have rows"
    counts = {name: texts.get(str(index), 0) for index, name in enumerate(names)}
    if len(counts) <= MAX_LISTED:
        return f"rows of each: {_counts(counts)}"
    spread_evenly = _span(min(counts.values()), max(counts.values()))
    return f"{len(names):,} classes of {spread_evenly} rows"


def _picture_lines(facts: TableStats) -> list[str]:
    formats = facts.column("format").texts()
    if not formats:
        return []
    lines = [f"pictures of each format: {_counts(formats)}"]
    sides = [facts.column(name).limits or (0, 0) for name in _SIZES]
    spans = [f"{n} {_span(*s)}" for n, s in zip(_SIZES, sides, strict=True)]
    lines.append(", ".join(spans))
    if all(low == high for low, high in sides):
        keys = ("height", "width", "channels")
        rule = {key: low for key, (low, _) in zip(keys, sides, strict=True)}
        lines.append(f"to reject other sizes: picture: {_flow(rule)}")
    return lines


def _span(low: Number, high: Number) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _distinct(facts: ColumnStats) -> str:
    if facts.distinct is None:
        return f"more than {MAX_DISTINCT:,}"
    return f"{facts.distinct:,}"


def _counts(counts: Mapping[str, int]) -> str:
    return _flow(dict(sorted(counts.items())))


def _flow(value: Any) -> str:
    """The value on one line of YAML."""
    return write_yaml(value, flow=True).rstrip("\n")


def _is_beyond_float32(value: Number) -> bool:
    return math.isfinite(value) and abs(value) >= _MAX_FLOAT32


def facts_json(inferred: Inferred) -> dict[str, Any]:
    """The facts and the schema for JSON output."""
    facts = inferred.facts
    return {
        "rows": facts.rows,
        "rows_rejected": facts.rejected,
        "first_rejects": [
            {"uri": p.path, "position": p.byte, "reason": p.reason}
            for p in facts.places
        ],
        "columns": {name: _column_json(facts.columns[name]) for name in facts.columns},
        "schema": inferred.declared.model_dump(mode="json", exclude_defaults=True),
    }


def _column_json(facts: ColumnStats) -> dict[str, Any]:
    low, high = facts.limits or (None, None)
    return {
        "dtype": facts.dtype,
        "rows": facts.rows,
        "nulls": facts.nulls,
        "min": _json_number(low),
        "max": _json_number(high),
        "shortest_bytes": facts.shortest,
        "longest_bytes": facts.longest,
        "distinct": facts.distinct,
        "values": dict(sorted(_few_texts(facts).items())),
    }


def _json_number(value: Number | None) -> Number | str | None:
    """JSON has no infinity."""
    return str(value) if value is not None and math.isinf(value) else value
