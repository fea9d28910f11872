"""What a run says at its end is true of the output, and its status fits."""

from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stopped_runs
from botocore.exceptions import FlexibleChecksumError
from example_counts import FACTOR
from job_tools import IRIS, assert_whole, contents, convert, manifest_of, recordmill
from killed_runs import staged
from store_servers import SERVERS, bucket_place

from recordmill.schemas.errors import BusyError
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.errors import describe_failure, is_transient
from recordmill.transforms.storage.lease import acquire, hold_for_publication
from recordmill.transforms.tasks.workspace import Workspace, work_folder_of

HEX = "0123456789abcdef" * 2
PUBLISHED = "The dataset was already published. Run the same command again to clean up"


def tries(folder: Path, number: int, *options: str) -> list[dict[str, Any]]:
    """What came out of so many disturbed runs; 200 in `make test-long`."""
    number = 200 if FACTOR > 1 else number
    command = [
        sys.executable,
        stopped_runs.__file__,
        folder / "tries",
        number,
        *options,
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_stopped_and_paused_on_disk(tmp_path: Path, seed: int) -> None:
    made = tries(tmp_path, 8, "--seed", f"{seed}")
    assert [each for each in made if each["wrong"]] == []


@pytest.mark.slow
def test_stopped_and_paused_on_s3(
    tmp_path: Path, server: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server("s3")
    for name, value in SERVERS["s3"].environment(address).items():
        monkeypatch.setenv(name, value)
    root = bucket_place("s3", {"endpoint_url": address}).root
    made = tries(tmp_path, 6, "--root", root, "--endpoint", address)
    assert [each for each in made if each["wrong"]] == []


def test_an_ended_run_publishes_nothing(tmp_path: Path) -> None:
    with acquire(LocalStore(str(tmp_path))) as lease:
        with hold_for_publication(lease.holder.nonce):
            assert not lease.end_publishing(0.01)  # it waits for what is under way
        assert lease.end_publishing()
        with pytest.raises(BusyError), hold_for_publication(lease.holder.nonce):
            pass


def test_a_late_thread_of_an_ended_run_publishes_nothing(tmp_path: Path) -> None:
    """Nobody else knows the run any more; a slow machine published behind its last line."""
    with acquire(LocalStore(str(tmp_path))) as lease:
        nonce = lease.holder.nonce
    del lease
    gc.collect()
    with pytest.raises(BusyError), hold_for_publication(nonce):
        pass


def test_the_lease_is_lost_behind_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder of versions: the version is there, latest.json is not moved."""
    from recordmill.beam_jobs.service import run

    real = run.run_job

    def sleep(*args: Any) -> object:
        outcome = real(*args)
        store = LocalStore(str(tmp_path / "out"))
        store.delete(store.list(".recordmill/lock"))
        return outcome

    command = ("csv", IRIS, tmp_path / "out", "--dataset-version", "auto")
    with monkeypatch.context() as patch:
        patch.setattr(run, "run_job", sleep)
        ran = recordmill("convert", *command)
    assert ran.status == 75
    first, last = ran.err.splitlines()[-2:]
    assert "this run lost its lease on the output" in first
    assert last == f"  {PUBLISHED}"
    convert(*command)  # as the message says
    assert json.loads((tmp_path / "out/latest.json").read_text())["version"] == "1.0.0"


@pytest.mark.parametrize("forgotten", ["manifest.json", "schema.pbtxt", "run.json"])
def test_a_file_that_the_store_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    forgot: list[str] = []
    real = LocalStore.swap

    def swap(
        store: LocalStore, data: bytes, name: str, *, expected_content: bytes | None
    ) -> bool:
        if name == forgotten and len(forgot) < 2:
            forgot.append(name)
            return True
        return real(store, data, name, expected_content=expected_content)

    monkeypatch.setattr(LocalStore, "swap", swap)
    convert("csv", IRIS, tmp_path / "out")
    assert len(forgot) == 2
    assert (tmp_path / "out" / forgotten).exists()
    assert_whole(tmp_path / "out")


def test_a_checksum_that_does_not_fit_once() -> None:
    error = FlexibleChecksumError(error_msg="Expected checksum A, found B")
    assert is_transient(error)
    assert "the received bytes" in describe_failure(error, "s3://bucket/x")


@pytest.mark.parametrize("side", ["input", "output"])
def test_an_unknown_storage_option(
    tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    pair = (
        ("s3://b/in.csv", tmp_path / "out") if side == "input" else (IRIS, "s3://b/o")
    )
    wrong = "endpont_url=http://127.0.0.1:9"
    ran = recordmill("convert", "csv", *pair, "--storage-option", wrong)
    assert (ran.status, "Traceback" in ran.err) == (2, False)
    assert "has no option 'endpont_url'" in ran.err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["verify", "{}"], 65),
        (["inspect", "{}"], 65),
        (["rejects", "{}"], 65),
        (["clean", "{}/none"], 65),
        (["convert", "csv", str(IRIS), "nope://b/out"], 73),
        (["convert", "csv", "nope://b/in.csv", "{}/out"], 65),
    ],
)
def test_what_is_missing_is_not_to_be_tried_again(
    tmp_path: Path, arguments: list[str], status: int
) -> None:
    ran = recordmill(*(each.format(tmp_path) for each in arguments))
    assert ran.status == status, ran.err


@pytest.mark.parametrize("kind", ["package", "data"])
def test_a_package_of_a_store_is_missing(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    pair = (
        (IRIS, "gs://b/out") if kind == "package" else ("gs://b/x.csv", tmp_path / "o")
    )
    ran = recordmill("convert", "csv", *pair)
    assert ran.status == (73 if kind == "package" else 65), ran.err
    assert "pip install" in ran.err


def test_a_disk_that_cannot_sync_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if ".tfrecord" in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out")
    assert ran.status == 1
    first = ran.err[ran.err.index("Error: ") :].splitlines()[0]
    assert "tfrecord-00000-of-00001" in first
    assert "Input/output error; the disk or its connection fails" in first


def test_no_inode_is_left_even_for_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.beam_jobs.pipelines import convert as pipeline

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/shard")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "write_shard", full)
        put = Workspace.write_file

        def no_file(workspace: Workspace, name: str, *args: Any, **how: Any) -> None:
            if name.startswith("errors/"):
                full()
            put(workspace, name, *args, **how)

        patch.setattr(Workspace, "write_file", no_file)
        ran = recordmill("convert", "csv", IRIS, tmp_path / "out")
    assert ran.status == 74, ran.err
    assert "Error: /disk/shard: cannot be written: No space left" in ran.err
    convert("csv", IRIS, tmp_path / "out")  # and nothing of it is left in this process


def test_temporary_files_of_a_commit_go_with_the_next_run(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", "out/.recordmill/commit-01234567/files"
    convert("csv", IRIS, out)
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / f".features.json.{HEX}").write_text("half")
    convert("csv", IRIS, out)  # unchanged
    assert not (out / ".recordmill").exists()
    staged(IRIS, out, "--overwrite", "--seed", "3")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / f".features.json.{HEX}").write_text("half")
    convert("csv", IRIS, out, "--overwrite", "--seed", "3")
    assert not list(out.rglob(f"*{HEX}"))


def test_empty_folders_of_killed_runs_go(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.beam_jobs.service.inputs import _remove_stale_folders

    old, young = tmp_path / ".recordmill-stdin-1", tmp_path / ".recordmill-stdin-2"
    for folder in (old, young):
        folder.mkdir()
    os.utime(old, (time.time() - 100,) * 2)
    _remove_stale_folders(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
    store = f"memory://{HEX}/out"
    convert("csv", IRIS, store)
    work = Path(work_folder_of(store))
    (work / "0123456789abcdef/runs").mkdir(parents=True)
    assert recordmill("clean", store).status == 0
    assert not work.exists()


def test_no_escape_reaches_the_terminal(tmp_path: Path) -> None:
    """Of names of files, of cells, and of a manifest that somebody else wrote."""
    steer = "\x1b]0;gone\x07\x1b[2J\x9b2J"
    table = tmp_path / f"t{steer}.csv"
    table.write_text(f"a,b{steer}\n1,{steer}\n2,y\n3\n")
    out = tmp_path / f"out{steer}"
    runs = [recordmill("convert", "csv", table, out, "--max-rejects", 5, "--name", "d")]
    assert runs[0].status == 0, runs[0].err
    whole = contents(out)
    facts = manifest_of(out)
    facts |= {"name": f"d{steer}", "version": f"1{steer}"}
    facts["splits"]["train"]["shards"][0]["file"] += steer
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "manifest.json").write_text(json.dumps(facts))
    (foreign / f".manifest.json{steer}.{HEX}").write_text("x")
    (out / f"stray-{steer}.tfrecord-00000-of-00001").write_text("x")
    (out / f".b{steer}.labels.txt.{HEX}").write_text("x")
    for folder in (out, foreign):
        for command in ("verify", "inspect", "rejects", "index", "verify --json"):
            name, *options = command.split()
            runs.append(recordmill(name, folder, *options))
        runs.append(recordmill("clean", folder, "--dry-run"))
        runs.append(recordmill("diff", out, folder))
        runs.append(recordmill("convert", "csv", table, folder, "--plan"))
        runs.append(recordmill("plan", table, folder))  # a wrong use of it
    assert whole.items() <= contents(out).items()
    for ran in runs:
        for character in "\x1b\x07\x9b":
            assert character not in ran.out + ran.err, ran
    assert any("\\x1b" in ran.out for ran in runs)
