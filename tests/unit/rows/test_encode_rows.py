"""Rows of a pipeline: what becomes of one never hangs on those beside it."""

from __future__ import annotations

import datetime as dt
import enum
import json
import pickle
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_keys import same_rows
from rows_tools import SCHEMA, in_chunks, make_rows, read_back

from recordmill.schemas.declared import DeclaredSchema, parse_declared
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec, RejectLimit, RunOptions, SplitSpec
from recordmill.schemas.ranges import KEY_SPACE, ShardPlan, ShardTask, SplitPlan
from recordmill.schemas.source_options import PIPELINE_ROWS
from recordmill.transforms.decode.examples import (
    MAX_FEATURES,
    ObservedFeature,
    ObservedFeatures,
)
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.encode.waiting_rows import payload_rows, payloads_of
from recordmill.transforms.exchange.pieces import ShardPieces, cut_block, open_piece
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.exchange.sorted_runs import (
    Block,
    SortedRows,
    SortedRunFolder,
    merge_shard_rows,
    write_sorted_run,
)
from recordmill.transforms.rows.elements import TableBuilder
from recordmill.transforms.rows.encode_rows import (
    RowsEncoder,
    RowsTotals,
    SplitRule,
    rows_bucket_bits,
    rows_fingerprint,
    summarize_rejects,
)
from recordmill.transforms.rows.read_rows import to_dicts
from recordmill.transforms.rows.rows_job import context_of_rows
from recordmill.transforms.sources.base import Append, PipelineRowsSource
from recordmill.transforms.sources.registry import make_source
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

BITS = 14
ONE_SHARD = ShardPlan((SplitPlan("", (0, KEY_SPACE), (1,), (1,)),))
HALVES = (SplitSpec(name="a", fraction="1/2"), SplitSpec(name="b", fraction="1/2"))


def schema(features: dict[str, Any]) -> DeclaredSchema:
    return parse_declared({"features": features}, "schema")


def job(features: dict[str, Any], **fields: Any) -> JobSpec:
    allowed = RejectLimit(text="100%")
    declared = schema(features)
    return JobSpec(
        source=PIPELINE_ROWS, name="x", declared=declared, max_rejects=allowed, **fields
    )


def encoded(
    rows: list[Any], spec: JobSpec, bundle: int = 1000
) -> tuple[list[tuple[int, int, bytes]], list[bytes], RowsTotals]:
    """(key, split, record) of all rows in order, the rejects, and what they add up to."""
    records, rejects = [], []
    totals = RowsTotals(Histogram.empty(len(spec.splits), BITS))
    for part in in_chunks(rows, bundle):
        reading = RowsEncoder(spec, BITS)
        found = [pair for row in part for pair in reading.add(row)]
        for block, facts in [*found, *reading.flush()]:
            keys, splits = block.keys.tolist(), block.splits.tolist()
            records += zip(
                keys, splits, payloads_of(block.rows).to_pylist(), strict=True
            )
            totals.add(facts)
        taken = reading.take_rejects()
        totals.add(summarize_rejects(taken))
        rejects += [line for _, line in taken]
    return sorted(records), sorted(rejects), totals


def decoded(
    records: list[tuple[int, int, bytes]], spec: JobSpec
) -> list[dict[str, Any]]:
    """The rows that records hold."""
    assert spec.declared is not None
    bare = [record[HEAD_BYTES:-TAIL_BYTES] for _, _, record in records]
    found = decode_payload(
        pa.array(bare, pa.binary()), spec.declared.to_schema(), spec.payload
    )
    assert found.row_errors == []
    return list(to_dicts(found.batch, spec.declared.to_schema()))


class Colour(enum.IntEnum):
    RED = 4


ZONE = dt.timezone(dt.timedelta(hours=2))
VALUES: list[tuple[Any, Any, Any]] = [
    ("int64", 7, 7),
    ("int64", True, 1),
    ("int64", np.int8(-3), -3),
    ("int64", Colour.RED, 4),
    ("int64", "12", 12),
    ({"dtype": "uint64", "stored": "tensor"}, 2**64 - 1, 2**64 - 1),
    ("uint64", 2**63 - 1, 2**63 - 1),
    ("float32", 1, 1.0),
    ("float32", np.float16(0.5), 0.5),
    ("float32", "2.5", 2.5),
    ("float64", Decimal("0.25"), 0.25),
    ("bool", True, True),
    ("bool", np.bool_(False), False),
    ("string", "héllo", "héllo"),
    ("string", b"bytes", "bytes"),
    ("bytes", b"\0\xff", b"\0\xff"),
    ("bytes", bytearray(b"a"), b"a"),
    ("bytes", memoryview(b"ab"), b"ab"),
    ({"dtype": "int64", "unit": "s"}, dt.datetime(1970, 1, 1, 2, tzinfo=ZONE), 0),
    ({"dtype": "int64", "unit": "s"}, dt.datetime(1970, 1, 1, 0, 1), 60),
    ({"dtype": "int64", "unit": "d"}, dt.date(1970, 1, 3), 2),
    ({"dtype": "int64", "unit": "s"}, dt.timedelta(minutes=2), 120),
    ({"dtype": "int64", "unit": "ms"}, dt.time(0, 0, 1), 1000),
    ("int64[]", [], []),
    ("int64[]", [1, np.int16(2)], [1, 2]),
    ("int64[]", (3,), [3]),
    ("int64[]", np.array([1, 2], ">i2"), [1, 2]),
    ("float32[]", [1, 2.5], [1.0, 2.5]),
    ({"dtype": "uint64", "shape": [None], "stored": "tensor"}, [1, 2**63], [1, 2**63]),
    ("string[]", np.array(["a", "b"]), ["a", "b"]),
    ("int64[2,2]", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ("int64[2,2]", [np.array([1, 2]), [3, 4]], [[1, 2], [3, 4]]),
    ("int64[2,2]", np.array([[1, 2], [3, 4]]).T, [[1, 3], [2, 4]]),
    ("int64[2,2]", np.array([1, 2, 3, 4]), [[1, 2], [3, 4]]),
    ("int64[?,?]", [[1], [2, 3]], [[1], [2, 3]]),
    ("int64[?,?]", np.ones((2, 1), np.uint8), [[1], [1]]),
    ("int64[?,?]", [], []),
    ("int64[?,?]", [[], []], [[], []]),
    ("int64?", None, None),
    ("int64", np.array(5), 5),
]


@pytest.mark.parametrize(("feature", "value", "expected"), VALUES)
def test_values(feature: Any, value: Any, expected: Any) -> None:
    spec = job({"a": feature})
    records, rejects, _ = encoded([{"a": value}], spec)
    assert rejects == []
    (row,) = decoded(records, spec)
    found = row["a"].tolist() if isinstance(row["a"], np.ndarray) else row["a"]
    assert found == expected


UNFIT: list[tuple[Any, Any, str]] = [
    ("int64", 2**64, "does not fit into 64 bits"),
    ("int64[]", [1, -(2**63) - 1], "does not fit into 64 bits"),
    ("uint64[]", [-1, 2**63], "column 'a'"),
    ("int64", 1.5, "double cannot become int64"),
    ("int64", object(), "a value of type object; expected a bool, a number"),
    ("int64", {"b": 1}, "a value of type dict"),
    ("int64[]", [1, [2]], "mixes lists and single values"),
    ("int64[]", [1, "x"], "mixes values of type int64, text"),
    ("int64[]", [1, None], "a list contains an empty or null value"),
    ("int64", [1], "list"),
    ("string", "\ud800", "surrogates not allowed"),
    ("string", b"\xff", "UTF-8"),
    (
        "int64[2,2]",
        np.ones((2, 3)),
        "an array of shape [2, 3] does not fit shape [2, 2]",
    ),
    ("int64[]", np.ones(2, complex), "column 'a'"),
    (
        {"dtype": "int64", "shape": [None], "unit": "s"},
        [dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=ZONE)],
        "the list mixes times with and without a time zone",
    ),
]


@pytest.mark.parametrize(("feature", "value", "expected"), UNFIT)
def test_values_that_do_not_fit(feature: Any, value: Any, expected: str) -> None:
    records, (reject,), totals = encoded([{"a": value}], job({"a": feature}))
    assert records == []
    assert expected in json.loads(reject)["reason"]
    assert (totals.rows_read, totals.rows_rejected) == (1, 1)
    assert totals.reject == reject


CELLS = st.sampled_from(
    [value for _, value, _ in VALUES if not isinstance(value, memoryview)]
    + [value for _, value, _ in UNFIT]
)
FEATURES = ["int64?", "float32?", "string?", "int64[]", "int64[2,2]", "bytes?"]


@given(st.data())
def test_a_row_becomes_the_same_in_every_company(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(FEATURES), min_size=1, max_size=3))
    features = {f"f{place}": feature for place, feature in enumerate(names)}
    rows = data.draw(
        st.lists(st.dictionaries(st.sampled_from(sorted(features)), CELLS), max_size=8)
    )
    spec = job(features, splits=HALVES)
    together = encoded(rows, spec)
    alone = encoded(data.draw(st.permutations(rows)), spec, bundle=1)
    assert alone[:2] == together[:2]
    assert rows_fingerprint(spec, alone[2]) == rows_fingerprint(spec, together[2])
    assert alone[2].histogram.to_bytes() == together[2].histogram.to_bytes()
    assert len(together[0]) + len(together[1]) == len(rows)


def test_rows_come_back() -> None:
    spec, rows = job(SCHEMA), make_rows(200)
    records, rejects, _ = encoded(rows, spec)
    assert rejects == []
    assert same_rows(decoded(records, spec), map(read_back, rows))


def test_rows_with_missing_values_share_a_batch() -> None:
    """Or each of them would be encoded alone."""
    rows = [{f"f{bit}": 1 for bit in range(6) if n >> bit & 1} for n in range(64)]
    features = {f"f{bit}": "int64?" for bit in range(6)}
    tables = TableBuilder(schema(features), SplitRule.of(job(features)))
    ((members, _),) = tables.build(rows)
    assert members == list(range(64))


def test_a_column_of_several_features() -> None:
    spec = job({"text": {"column": "a", "dtype": "string"}, "a": "int64"})
    records, _, _ = encoded([{"a": "07"}], spec)
    assert decoded(records, spec) == [{"a": 7, "text": "07"}]


def test_the_fingerprint_tells_datasets_apart() -> None:
    one, other = job({"a": "int64"}), job({"a": "int64?"})
    rows = [{"a": n % 5} for n in range(20)]
    prints = {
        rows_fingerprint(spec, encoded(given, spec)[2])
        for spec in (one, other)
        for given in (rows, rows[:-1], [*rows, rows[0]], [*rows, {"a": "x"}], [])
    }
    assert len(prints) == 10
    relaxed = one.model_copy(update={"max_rejects": RejectLimit(text="5")})
    totals = encoded(rows, one)[2]
    assert rows_fingerprint(relaxed, totals) == rows_fingerprint(one, totals)


def test_totals_of_parts_are_those_of_all() -> None:
    spec = job(SCHEMA)
    rows = [*make_rows(40), {"label": "x"}, {"label": "y"}]
    whole = encoded(rows, spec)[2]
    merged = RowsTotals(Histogram.empty(1, BITS))
    for part in in_chunks(rows, 7):
        merged.merge(encoded(list(part), spec)[2])
    assert merged.reject == whole.reject
    assert rows_fingerprint(spec, merged) == rows_fingerprint(spec, whole)
    assert merged.histogram.to_bytes() == whole.histogram.to_bytes()


@pytest.mark.parametrize(
    ("fields", "expected", "why"),
    [
        ({"num_shards": 1}, 14, "never coarser"),
        ({"num_shards": 100}, 17, "1024 buckets a shard"),
        ({"shard_bytes": 1 << 27}, 20, "nobody knows how many shards there will be"),
    ],
)
def test_bits(fields: dict[str, int], expected: int, why: str) -> None:
    spec = job({"a": "int64"}, sharding=fields)
    assert rows_bucket_bits(spec) == expected, why


def test_bits_of_many_splits() -> None:
    splits = tuple(SplitSpec(name=f"s{n}", fraction="1/255") for n in range(255))
    assert rows_bucket_bits(job({"a": "int64"}, splits=splits)) == 14


def test_too_many_features() -> None:
    many = ObservedFeatures()
    one = ObservedFeature(frozenset({"int64_list"}), 1, 1, 1)
    for number in range(MAX_FEATURES):
        many.add(ObservedFeatures({f"{number}": one}))
    many.add(ObservedFeatures({"0": one}))
    with pytest.raises(SchemaError, match="more than 10,000 different features"):
        many.add(ObservedFeatures({"more": one}))


def test_no_features() -> None:
    with pytest.raises(SchemaError, match="none of 3 examples has a feature"):
        ObservedFeatures().to_schema(3)


TIED = st.lists(
    st.lists(
        st.tuples(st.integers(0, 5), st.binary(max_size=3)), min_size=1, max_size=12
    ),
    min_size=1,
    max_size=4,
)


def block_of(rows: list[tuple[int, bytes]]) -> Block:
    """A block of (key, record)."""
    return Block(
        payload_rows(pa.array([data for _, data in rows], pa.binary())),
        np.array([key for key, _ in rows], np.uint64),
        np.zeros(len(rows), np.uint8),
        np.array([len(data) for _, data in rows], np.int64),
    )


@given(TIED, st.randoms())
def test_ties_are_ordered_by_content(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[list[tuple[int, bytes]]],
    random: Any,
) -> None:
    """Two records whose hashes collide lie in one order, whatever brings them."""
    blocks = list(map(block_of, parts))
    expected = sorted(row for rows in parts for row in rows)
    window_bytes = max(
        sum(len(data) for key, data in expected if key == wanted) for wanted in range(6)
    )
    pieces = [
        piece
        for number, block in enumerate(blocks)
        for _, piece in cut_block(block, ONE_SHARD, (number, 0), piece_bytes=8)
    ]
    random.shuffle(pieces)
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        write_sorted_run(folder / f"{n}", SortedRows.from_blocks([block], 1))
        for n, block in enumerate(blocks)
    ]
    random.shuffle(runs)
    task = ShardTask("", 0, 0, 1, 0, KEY_SPACE)
    for found in (
        windows_of(pieces, window_bytes),
        windows_of(pieces, window_bytes, held_bytes=10),
        merge_shard_rows(
            SortedRunFolder(str(folder)),
            runs,
            task,
            window_bytes,
            break_ties_by_content=True,
        ),
    ):
        payloads = [data for window in found for data in window.to_pylist()]
        assert payloads == [data for _, data in expected]


def windows_of(
    pieces: list[bytes], window_bytes: int = 8 << 20, held_bytes: int = 1 << 30
) -> Iterator[pa.BinaryArray]:
    found = ShardPieces(held_bytes=held_bytes)
    for piece in pieces:
        found.add(piece)
    return found.windows(window_bytes, break_ties_by_content=True)


@given(TIED)
def test_a_piece_cut_again_is_as_if_cut_once(
    parts: list[list[tuple[int, bytes]]],
) -> None:
    rows = parts[0]
    block = block_of(rows)
    plan = ShardPlan((SplitPlan("", (0, 2, 4, KEY_SPACE), (1,) * 3, (1,) * 3),))
    shards: dict[int, list[bytes]] = {}
    origins = set()
    for split, piece in cut_block(block, ONE_SHARD, (1 << 63, 0), piece_bytes=8):
        opened, head = open_piece(piece, split)
        origins.add(head.sort_key)
        for number, inner in cut_block(opened, plan, head.sort_key, piece_bytes=4):
            shards.setdefault(number, []).append(inner)
    assert {origin[0] for origin in origins} == {1 << 63}
    for number, wanted in enumerate([(0, 1), (2, 3), (4, 5)]):
        found = windows_of(shards.get(number, []))
        payloads = [data for window in found for data in window.to_pylist()]
        assert payloads == [data for key, data in sorted(rows) if key in wanted]


def test_rows_come_from_no_files() -> None:
    spec = job({"a": "int64"})
    assert spec.declared is not None
    features = spec.declared.to_schema()
    source = PipelineRowsSource(features)
    files = [InputFile("a", "a", 1)]
    assert source.prepare(files).cut_ranges(files) == []
    assert source.prepare(files, Append(files, features)) == source
    assert source.schema() == features
    assert not source.columns().names
    with pytest.raises(ValueError, match="have no files"):
        make_source(spec)


def test_what_travels_to_workers_is_small() -> None:
    """And free of connections and secrets: it is pickled into the pipeline."""
    spec = job(SCHEMA)
    store = LocalStore("/out")
    options = RunOptions((), "/out", exchange="scratch")
    work = context_of_rows(spec, store, options, remote=False)
    assert len(pickle.dumps(work)) < 4000
    assert re.fullmatch("rows-[0-9a-f]{11}", work.workspace.name)
    assert pickle.loads(pickle.dumps(work)) == work
