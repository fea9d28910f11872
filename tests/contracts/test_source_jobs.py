"""The contract of every source in whole jobs: exchanges, resume, append.

The cases stand in source_cases.py; a new source adds one and inherits every test.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from append_tools import records_of, stand
from archive_tools import ARCHIVES, files_in
from case_jobs import BY_PROCESS, offer, run_case
from job_tools import (
    assert_unpublished,
    assert_whole,
    contents,
    manifest_of,
    payloads,
    shards_of,
)
from plain_runner import without_beam
from source_cases import CASES, Case

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.options import RequestedExchange
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.exchange.sorted_runs import MemoryFile
from recordmill.transforms.sources.base import ReferencedRows, Source
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.tasks import processes

BEFORE_SHARDS = "recordmill.beam_jobs.pipelines.convert.save_plan_totals"
EXCHANGES: tuple[RequestedExchange, ...] = ("scratch", "engine", "reference")
LAST_STEP = "recordmill.beam_jobs.pipelines.convert.stage"


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    """A case that jobs can name, whose input is cut into several ranges."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # half the time; no power is lost
    found = CASES[request.param]
    offer(found.source, monkeypatch)
    with without_beam():
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


@contextmanager
def counting_reads(source: Source) -> Iterator[Counter[str]]:
    """Counts what a source of this kind is asked to read, by its methods.

    Of `read_windows` it counts the rows that come: without any it only tells columns.
    """
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(type(source), name)

        def call(*args: Any) -> Any:
            calls[name] += 1
            return method(*args)

        return call

    def watched(*args: Any) -> Iterator[ReferencedRows]:
        for found in read_windows(*args):
            calls["read_windows"] += found.batch.num_rows
            yield found

    read_windows = type(source).read_windows
    with pytest.MonkeyPatch.context() as patch:
        for name in ("scan_boundaries", "read", "list_references"):
            patch.setattr(type(source), name, counted(name))
        patch.setattr(type(source), "read_windows", watched)
        yield calls


def fail_in(step: str, given: Path, output: Path, exchange: RequestedExchange) -> None:
    """Runs a job up to this step, which fails."""

    def fail(*_: object) -> None:
        raise OSError("the machine went down")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, fail)
        with pytest.raises(RecordmillError, match="the machine went down"):
            run_case(given, output, exchange)
    assert_unpublished(output)


def test_a_run_that_failed_in_its_last_step_goes_on(
    case: Case, folder: Path, tmp_path: Path
) -> None:
    """By every exchange: nothing is read again, and all bytes are the same."""
    rows = case.make(folder)
    model = tmp_path / "model"
    run_case(folder, model, "scratch")
    facts = manifest_of(model)
    assert (facts["rows_read"], facts["rows_rejected"]) == (len(rows), 0)
    assert_whole(model)
    for exchange in EXCHANGES:
        if exchange == "reference" and not case.source.supports_references:
            continue
        output = tmp_path / exchange
        with counting_reads(case.source) as reads:
            fail_in(LAST_STEP, folder, output, exchange)
            ranges = len([*output.glob(f".recordmill/*/facts/range-{exchange}-*.json")])
            assert ranges > 2
            sends = exchange == "engine" and case.source.supports_references
            by_reference = exchange == "reference" or (sends and case.source.lists_rows)
            asked = "list_references" if by_reference else "read"
            assert reads[asked] >= ranges
            assert reads["read_windows"] == (len(rows) if by_reference else 0)
            reads.clear()
            run_case(folder, output, exchange)
            if exchange != "reference":  # the sizes of images are listed, not read
                del reads["list_references"]
            assert +reads == {}
        assert contents(output) == contents(model)


def test_a_run_that_failed_before_its_shards_goes_on(
    case: Case, folder: Path, tmp_path: Path
) -> None:
    """Of an archive, which each run unpacks for itself; it reads no range again."""
    case.make(folder)
    archive = tmp_path / "in.tar.gz"
    archive.write_bytes(ARCHIVES[archive.name](files_in(folder)))
    if case.source.reads_archives:
        archive = folder  # of what it reads
    run_case(archive, tmp_path / "model", "scratch")
    with counting_reads(case.source) as reads:
        fail_in(BEFORE_SHARDS, archive, tmp_path / "out", "scratch")
        assert reads["read"] > 2
        assert not [*tmp_path.glob("out/.recordmill/*/facts/shard-*")]
        reads.clear()
        run_case(archive, tmp_path / "out", "scratch")
    del reads["list_references"]
    assert +reads == {}
    assert contents(tmp_path / "out") == contents(tmp_path / "model")


def test_a_lost_reject_is_found_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the engine's exchange, which reads nothing else again at its end."""
    case = CASES["csv"]
    case.make(folder)
    name, size = case.cut_short
    (folder / name).write_bytes((folder / name).read_bytes()[:size])
    offer(case.source, monkeypatch)
    output, model = tmp_path / "out", tmp_path / "model"
    with without_beam():
        run_case(folder, model, "engine")
        fail_in(LAST_STEP, folder, output, "engine")
        (rejects,) = output.glob(".recordmill/*/rejects/range-engine-*.jsonl")
        rejects.unlink()
        with counting_reads(case.source) as reads:
            run_case(folder, output, "engine")
    assert reads == {"read": 1}
    assert contents(output) == contents(model)


class InThread:
    """Stands for a process of the run: a thread serves its socket."""

    pid = 1 << 30  # of nobody

    def __init__(self, _: list[str], *, pass_fds: list[int], **others: Any) -> None:
        own = (os.dup(pass_fds[0]),)
        threading.Thread(target=processes.serve, args=own, daemon=True).start()

    def poll(self) -> None:
        """Returns that it is alive."""

    kill = wait = poll


def read_to_the_end(connection: Connection, requests: SimpleQueue[bytes]) -> None:
    with suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv_bytes())


def test_processes_write_the_same(
    case: Case, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a task needs and returns passes through a socket, or a file in memory."""
    fake = SimpleNamespace(Popen=InThread, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(processes, "subprocess", fake)
    monkeypatch.setattr(processes, "_read", read_to_the_end)
    read = Mock(side_effect=MemoryFile.read)
    monkeypatch.setattr(MemoryFile, "read", read)
    case.make(folder)
    run_case(folder, tmp_path / "model", "scratch")
    assert not read.called
    for exchange in EXCHANGES[::2]:
        if exchange == "reference" and not case.source.supports_references:
            continue
        run_case(folder, tmp_path / exchange, exchange, beam_args=BY_PROCESS)
        assert contents(tmp_path / exchange) == contents(tmp_path / "model")
    assert read.called


def test_new_files_are_appended(case: Case, folder: Path, tmp_path: Path) -> None:
    """Each row once, in the split of a whole run; no shard of before is touched."""
    rows = case.make(folder)
    output, model = tmp_path / "out", tmp_path / "model"
    run_case(folder, model, "scratch")
    for path in (later := later_files(folder, rows)):
        path.rename(tmp_path / path.name)
    assert run_case(folder, output, "scratch", append=True).status == "done"
    before = stand(output)
    first = manifest_of(output)
    assert 0 < first["rows_read"] - first["rows_rejected"] < len(rows)
    for path in later:
        (tmp_path / path.name).rename(path)
    for expected in ("done", "unchanged"):
        assert run_case(folder, output, "scratch", append=True).status == expected
        assert before.items() <= stand(output).items()
        assert records_of(output) == records_of(model)
    whole, found = manifest_of(model), manifest_of(output)
    assert found["features"] == whole["features"]
    assert whole["rows_read"] == len(rows)
    # A table of labels names an image that comes later: it was a reject before.
    assert found["rows_read"] - found["rows_rejected"] == len(rows)
    assert verify_dataset(str(output), deep=True).problems == ()


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sample_is_the_same_by_every_exchange(
    case: Case, folder: Path, tmp_path: Path, *, shuffle: bool
) -> None:
    """In each split it is what a whole run has: the first records, or some of them."""
    rows = len(case.make(folder))
    run_case(folder, tmp_path / "all", "scratch", shuffle=shuffle)
    splits = {
        name: [
            p for shard in shards_of(tmp_path / "all", name) for p in payloads(shard)
        ]
        for name in manifest_of(tmp_path / "all")["splits"]
    }
    for number, sampling in enumerate(({"limit": 4}, {"sample": "1/2"})):
        model: dict[str, str] = {}
        for exchange in EXCHANGES:
            if exchange == "reference" and not case.source.supports_references:
                continue
            output = tmp_path / f"{exchange}-{number}"
            run_case(folder, output, exchange, shuffle=shuffle, **sampling)
            model = model or contents(output)
            assert contents(output) == model
        facts = manifest_of(output)
        assert facts["rows_read"] == rows
        found = 0
        for name, records in splits.items():
            own = [p for shard in shards_of(output, name) for p in payloads(shard)]
            found += len(own)
            if "limit" in sampling:
                assert own == records[: len(own)]
            left = iter(records)
            assert all(record in left for record in own)
        assert facts["sampling"] == {"rows_left_out": rows - found}
        assert "limit" not in sampling or found == 4
        assert_whole(output)


def later_files(folder: Path, rows: list[tuple[str, int, bytes]]) -> list[Path]:
    """Returns the file of the fewest rows, with those whose names begin as its does."""
    counts = Counter(path for path, _, _ in rows)
    fewest = Path(min(counts, key=lambda path: counts[path]))
    word = re.split("[-_.]", fewest.name)[0]
    return [*(folder / fewest.parent).glob(f"{word}[-_.]*")]


@pytest.mark.parametrize(
    ("name", "exchange"),
    [("csv", "scratch"), ("csv", "engine"), ("cifar", "reference")],
)
def test_beam_makes_what_the_plain_runner_makes(
    name: str,
    exchange: RequestedExchange,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of several ranges; so what is tested above holds for whole jobs."""
    CASES[name].make(folder)
    offer(CASES[name].source, monkeypatch)
    run_case(folder, tmp_path / "beam", exchange)
    with without_beam():
        run_case(folder, tmp_path / "plain", exchange)
    assert contents(tmp_path / "beam") == contents(tmp_path / "plain")
