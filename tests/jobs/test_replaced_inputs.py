"""An input that is replaced while a run reads it: told by name, nothing is published."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from job_tools import GOLDEN, convert, copy_golden, recordmill
from source_tools import read
from store_servers import display_path

from recordmill.beam_jobs.service import run as run_job
from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.commit import staging
from recordmill.transforms.commit import staging as input_check
from recordmill.transforms.commit.commit import REPLACED_DIGEST_NAME
from recordmill.transforms.sources.arrays import source as arrays_source
from recordmill.transforms.sources.arrays.fixed_records import CifarSource
from recordmill.transforms.sources.base import RangeFindings
from recordmill.transforms.storage.clouds import RemoteFile
from recordmill.transforms.tasks import write_shard

FILES = {"csv": "a.csv", "cifar": "data_batch_1.bin", "images": "cat/b.jpg"}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    copy_golden(root)
    return root


def written_again(file: Path) -> None:
    """Other bytes, just as many."""
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(1, 1))


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (written_again, "was written again"),
    (cut_short, "bytes, was"),
    (Path.unlink, "No such file"),
]
EXCHANGES = ("auto", "scratch", "engine")


def change_before_the_last_step(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]
) -> None:
    """Changes an input when the first shard has been written."""
    write = write_shard.write_records
    changed: list[bool] = []

    def then_change(*arguments: Any, **options: Any) -> Any:
        result = write(*arguments, **options)
        if not changed:
            changed.append(True)
            change()
        return result

    monkeypatch.setattr(write_shard, "write_records", then_change)


@pytest.mark.parametrize(
    ("source", "exchange", "change", "message"),
    [  # each with each of the others once: what looks again is the same for all
        (source, EXCHANGES[(row + column) % 3], *CHANGES[column])
        for row, source in enumerate(FILES)
        for column in range(3)
    ],
)
def test_nothing_is_published(
    source: str,
    exchange: str,
    change: Callable[[Path], None],
    message: str,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = inputs / source / FILES[source]
    change_before_the_last_step(monkeypatch, lambda: change(file))
    output = tmp_path / "out"
    how = ("--shards", 1, "--exchange", exchange)
    ran = recordmill("convert", source, inputs / source, output, *how)
    assert ran.status == 75
    assert "1 input file changed while the run read them" in ran.err
    assert f"{file}: " in ran.err
    assert message in ran.err
    assert not (output / "manifest.json").exists()
    # Nor is noted what it would replace: a manifest of an earlier launch may be staged.
    assert not list(output.glob(f".recordmill/*/{REPLACED_DIGEST_NAME}"))


def replaced_in_disguise(file: Path) -> None:
    """Another file of the same name, size and time, as from an archive without times."""
    facts = file.stat()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    other = file.with_name(".other")
    other.write_bytes(data)
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.replace(file)


def untouched(files: Path) -> None:
    """Waits until the system's clock is beyond the time at which the inputs came."""
    latest = max(file.stat().st_ctime for file in files.rglob("*"))
    while time.time() <= latest + 0.02:
        time.sleep(0.005)


@pytest.mark.parametrize("source", FILES)
def test_replaced_by_one_of_the_same_size_and_time(
    source: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = inputs / source / FILES[source]
    output = tmp_path / "out"
    limit = ("--max-rejects", 1)  # the end of the image is not whole any more
    job = ["convert", source, inputs / source, output, *limit]
    with monkeypatch.context() as patch:
        change_before_the_last_step(patch, lambda: replaced_in_disguise(file))
        ran = recordmill(*job)
    assert ran.status == 75
    assert f"{file}: was replaced by another file of the same size and time" in ran.err
    assert not (output / "manifest.json").exists()
    # Nothing of the old file is taken up.
    assert recordmill(*job).status == 0
    convert(source, inputs / source, tmp_path / "other" / "out", *limit)
    manifests = [
        folder / "manifest.json" for folder in (output, tmp_path / "other/out")
    ]
    assert manifests[0].read_bytes() == manifests[1].read_bytes()


@pytest.mark.parametrize("damage", [None, b"", bytes(18), b"17"])
def test_replaced_so_before_a_run_is_resumed(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    """The first launch read the old file; the second takes up what that one did.

    The note of when that was may be damaged, by a power loss above all.
    """
    file = inputs / "csv" / FILES["csv"]
    job = ("convert", "csv", inputs / "csv", tmp_path / "out", "--memory", 0)

    def fail() -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        change_before_the_last_step(patch, fail)
        assert recordmill(*job).status != 0
    [note] = (tmp_path / "out").glob(".recordmill/*/listed-at")
    if damage is not None:
        note.write_bytes(damage)
    replaced_in_disguise(file)
    ran = recordmill(*job)
    assert ran.status == 75
    assert f"{file}: was replaced by another file of the same size and time" in ran.err
    assert recordmill(*job).status == 0


def test_touched_but_the_same(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that makes links, or another right: no reason to fail, only to look."""
    file = inputs / "csv" / FILES["csv"]
    untouched(inputs)
    looked: list[str] = []
    is_as_read = input_check._is_as_read

    def noted(file: InputFile, *arguments: Any) -> bool:
        looked.append(file.uri)
        return is_as_read(file, *arguments)

    monkeypatch.setattr(input_check, "_is_as_read", noted)
    change_before_the_last_step(monkeypatch, lambda: file.chmod(0o600))
    convert("csv", inputs / "csv", tmp_path / "out")
    assert looked == [str(file)]


@pytest.mark.parametrize(("source", "exchange"), zip(FILES, EXCHANGES, strict=True))
def test_replaced_and_put_back(
    source: str,
    exchange: str,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the end all looks as at the beginning; but another file was read."""
    file = inputs / source / FILES[source]
    kept = shutil.copy2(file, tmp_path / "kept")
    prepared = run_job.prepare_run

    def then_replaced(*arguments: Any) -> Any:
        run = prepared(*arguments)
        written_again(file)
        return run

    def put_back(*arguments: Any) -> None:
        shutil.copy2(kept, file)
        check(*arguments)

    check = staging.require_same_inputs
    monkeypatch.setattr(run_job, "prepare_run", then_replaced)
    monkeypatch.setattr(staging, "require_same_inputs", put_back)
    output = tmp_path / "out"
    job = ("convert", source, inputs / source, output, "--exchange", exchange)
    ran = recordmill(*job)
    assert ran.status == 75
    assert f"{file}: was written again after the run began" in ran.err
    assert not (output / "manifest.json").exists()
    monkeypatch.undo()
    shutil.copy2(kept, file)
    assert recordmill(*job).status == 0


def test_labels_are_looked_at_again(inputs: Path) -> None:
    """By reference: a file that was written again and has its old time."""
    folder = inputs / "cifar"
    reading = read(CifarSource(), folder)
    (rows,) = reading.source.list_references(reading.ranges[0], RangeFindings())
    file = folder / FILES["cifar"]
    facts, data = file.stat(), bytearray(file.read_bytes())
    data[3073] = 255
    file.write_bytes(data)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(
        ChangedInputError, match=r"data_batch_1.bin: contains labels that"
    ):
        next(reading.source.read_windows([rows.batch["reference"]], RangeFindings()))


def test_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryFileSystem()
    store.pipe("/replaced/in/a.csv", (GOLDEN / "tutorial.csv").read_bytes())
    change_before_the_last_step(
        monkeypatch, lambda: store.pipe("/replaced/in/a.csv", b"a,b\n1,2\n")
    )
    ran = recordmill("convert", "csv", "memory://replaced/in", tmp_path / "out")
    assert ran.status == 75
    assert "memory://replaced/in/a.csv: 8 bytes, was 32,486 when the" in ran.err
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("source", FILES)
def test_replaced_between_two_reads_of_an_object(
    source: str,
    inputs: Path,
    server: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And put back before the end, so that only the reads themselves can tell it.

    An image is one read, so it is replaced right before that.
    """
    place = display_path("s3", tmp_path, monkeypatch, server)
    for file in sorted((inputs / source).rglob("*.*")):
        last = f"in/{file.relative_to(inputs / source)}"
        place.store.put_bytes(file.read_bytes(), last)
    changed = last if source == "images" else f"in/{FILES[source]}"
    kept = place.store.read(changed)
    monkeypatch.setattr(arrays_source, "BATCH_BYTES", 3 * 3073)
    reads: list[str] = []
    read = RemoteFile.read_version

    def replaced(self: RemoteFile, *arguments: Any) -> bytes:
        its_first = changed in self.path and self.path not in reads
        reads.append(self.path)
        data = None if source == "images" else read(self, *arguments)
        if its_first:
            place.store.put_bytes(kept[:-1] + b"x", changed)
        return read(self, *arguments) if data is None else data

    def put_back(*arguments: Any) -> None:
        place.store.put_bytes(kept, changed)
        check(*arguments)

    check = staging.require_same_inputs
    output = tmp_path / "out"
    job = ["convert", source, f"{place.root}/in", output, "--exchange", "engine"]
    job += ["--storage-option", f"input:endpoint_url={server('s3')}"]
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFile, "read_version", replaced)
        patch.setattr(staging, "require_same_inputs", put_back)
        ran = recordmill(*job)
    assert ran.status == 75
    told = f"{place.root}/{changed}: was written again or removed after the run began"
    assert told in ran.err
    assert not (output / "manifest.json").exists()


def test_a_new_file_is_the_next_run_s(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = inputs / "csv"
    change_before_the_last_step(
        monkeypatch, lambda: (folder / "c.csv").write_text("a\n")
    )
    convert("csv", folder, tmp_path / "out")
    assert (folder / "c.csv").exists()
    listed = gzip.decompress((tmp_path / "out" / "inputs.jsonl.gz").read_bytes())
    assert b"b.csv" in listed
    assert b"c.csv" not in listed
