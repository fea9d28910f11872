"""WriteDataset: published whole or not at all, whatever was there before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from job_tools import assert_unpublished, assert_whole, contents
from rows_tools import EXCHANGES, JOB, ROWS, error_of, write
from same_dataset import dataset_of

from recordmill.beam_jobs.pipelines import write_dataset as rows_steps
from recordmill.transforms.commit import staging as detached
from recordmill.transforms.commit.cleanup import clean
from recordmill.transforms.commit.commit import commit
from recordmill.transforms.rows import rows_job as work
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire


def test_the_same_rows_again_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ROWS, tmp_path / "out", **JOB)
    before = {
        p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (tmp_path / "out").iterdir()
    }
    monkeypatch.setattr(rows_steps, "write_shard", None)  # not even made again
    write(ROWS[::-1], tmp_path / "out", **JOB)
    after = {
        p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (tmp_path / "out").iterdir()
    }
    assert after == before


def test_another_dataset_is_replaced_only_if_asked(
    tmp_path: Path, rows_dataset: Path
) -> None:
    output = tmp_path / "out"
    write(ROWS[:10], output, **JOB | {"shards": 5})
    before = contents(output)
    error = error_of(lambda: write(ROWS, output, **JOB))
    assert "contains another dataset" in error
    assert "replace it with overwrite=True" in error
    assert {
        f: d for f, d in contents(output).items() if ".recordmill" not in f
    } == before
    clean(LocalStore(str(output)))  # what the one that was refused left
    write(ROWS, output, overwrite=True, grace="0", **JOB)
    assert_whole(output)
    assert dataset_of(output) == dataset_of(rows_dataset)
    assert not list(output.rglob("replaced.json"))  # nor what it names


def test_a_damaged_dataset_is_made_anew_only_if_asked(
    tmp_path: Path, rows_dataset: Path
) -> None:
    output = Path(shutil.copytree(rows_dataset, tmp_path / "out"))
    shard = next(path for path in output.iterdir() if ".tfrecord" in path.name)
    shard.unlink()
    error = error_of(lambda: write(ROWS, output, **JOB))
    assert "is damaged: convert again with overwrite=True" in error
    clean(LocalStore(str(output)))  # what the one that was refused left
    write(ROWS, output, overwrite=True, **JOB)
    assert_whole(output)
    assert dataset_of(output) == dataset_of(rows_dataset)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    error = error_of(lambda: write(ROWS[:3], tmp_path / "out", overwrite=True))
    assert "is not empty (thesis.txt) and does not contain a dataset" in error
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_file()] == [
        "thesis.txt"
    ]


def test_goes_on_from_what_is_finished(
    tmp_path: Path, rows_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are named by what they will hold, so the next pipeline finds them."""
    output = tmp_path / "out"

    def broken(*_: object) -> None:
        raise OSError("the power went")

    for exchange in EXCHANGES:
        with monkeypatch.context() as patch:
            patch.setattr(work, "stage", broken)
            assert "the power went" in error_of(
                lambda e=exchange: write(ROWS, output, exchange=e, **JOB)  # type: ignore[misc]
            )
    assert_unpublished(output)
    # As if one shard had never been finished.
    (gone,) = output.glob(".recordmill/*/facts/shard-train-00001.json")
    gone.unlink()
    sent = []

    def noting(*arguments: Any) -> Any:
        for number, piece in cut_block(*arguments):
            sent.append(number)
            yield number, piece

    cut_block = rows_steps.cut_block
    monkeypatch.setattr(rows_steps, "cut_block", noting)
    write(ROWS, output, exchange="engine", **JOB)
    assert contents(output).keys() >= contents(rows_dataset).keys()
    left = {path.parent.name for path in output.glob(".recordmill/*/runs")}
    assert all(name.startswith("rows-") for name in left)
    clean(LocalStore(str(output)))
    assert_whole(output)
    assert contents(output) == contents(rows_dataset)


def test_a_switch_that_was_broken_off_is_repeated(
    tmp_path: Path, rows_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the runner tries the last step again, or the whole pipeline is run."""
    moved = []

    def breaking(workspace: Any, staged: Any) -> Any:
        if not moved:
            moved.append(workspace)
            shard = next(iter(workspace.store.list(workspace.store_name("staging"))))
            workspace.store.move_all([(shard, shard.rpartition("/")[2])])
            raise OSError("the power went")
        return commit(workspace, staged)

    monkeypatch.setattr(detached, "commit", breaking)
    assert "the power went" in error_of(lambda: write(ROWS, tmp_path / "out", **JOB))
    assert not (tmp_path / "out" / "manifest.json").exists()
    write(ROWS, tmp_path / "out", **JOB)
    clean(LocalStore(str(tmp_path / "out")))
    assert contents(tmp_path / "out") == contents(rows_dataset)


def test_an_output_that_another_run_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "LEASE_TRIES", 2)
    monkeypatch.setattr(detached, "LEASE_PAUSE_SECONDS", 0.1)
    with acquire(LocalStore(str(tmp_path / "out"))):
        error = error_of(lambda: write(ROWS[:3], tmp_path / "out"))
    assert "another run is writing here" in error
    assert_unpublished(tmp_path / "out")


def test_the_last_step_waits_for_a_lease_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(LocalStore(str(tmp_path / "out")))
    monkeypatch.setattr(detached.time, "sleep", lambda _: lease.release())
    write(ROWS[:3], tmp_path / "out")
    assert_whole(tmp_path / "out")


def test_a_damaged_run_is_never_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaging(*arguments: Any, **options: Any) -> Any:
        for run in (tmp_path / "out").glob(".recordmill/rows-*/runs/*.records"):
            data = bytearray(run.read_bytes())
            data[50] ^= 1
            run.write_bytes(data)
        return write_shard(*arguments, **options)

    write_shard = rows_steps.write_shard
    monkeypatch.setattr(rows_steps, "write_shard", damaging)
    error = error_of(lambda: write(ROWS, tmp_path / "out", shards=1))
    assert "was damaged in scratch" in error
    assert_unpublished(tmp_path / "out")
