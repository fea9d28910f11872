"""Rows through the engine's own shuffle: the same bytes, rejects and resumed runs.

Here on the embedded runner and on Beam's portable one, whose job service is Python as
well; tests/integration has the engines.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from job_inputs import MixedInput
from job_tools import (
    IRIS,
    PORTABLE,
    SAMPLES,
    Argument,
    assert_unpublished,
    assert_whole,
    contents,
    convert,
    kill,
    manifest_of,
    recordmill,
    started,
    wait_until,
)
from killed_runs import failing, replaced
from store_servers import Place
from store_tools import local_files, published, to_store

from recordmill.transforms.exchange import pieces
from recordmill.transforms.tasks import convert_range as engine_task
from recordmill.transforms.tasks.workspace import Workspace

ENGINE: list[Argument] = ["--exchange", "engine"]
INPUTS = {
    "csv": [IRIS],
    "cifar": [SAMPLES / "cifar", "--variant", "cifar10"],
    "images": [SAMPLES / "images"],
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs to stores work meanwhile, and the launcher keeps its log."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["GroupByKey", "state"])
def grouping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How pieces are grouped by shard: as on most runners, or as on Flink."""
    kind: str = request.param
    monkeypatch.setattr(
        "recordmill.beam_jobs.pipelines.group_by_shard.is_flink",
        lambda _: kind == "state",
    )
    return kind


def test_the_portable_runner_gives_the_same_bytes(
    tmp_path: Path, model: Callable[[str], Path]
) -> None:
    """Tables and images by it come to a store below."""
    first, *rest = INPUTS["cifar"]
    job = [first, tmp_path / "there", *rest, "--shards", 3, "--name", "same"]
    convert("cifar", *job, "--", *PORTABLE)
    assert_whole(tmp_path / "there")
    assert contents(tmp_path / "there") == contents(model("cifar"))
    facts = json.loads((tmp_path / "there" / "run.json").read_bytes())
    assert (facts["runner"], facts["exchange"]) == ("PortableRunner", "engine")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The dataset of an input of three shards, made when it is first asked for."""

    @functools.cache
    def make(source: str) -> Path:
        first, *rest = INPUTS[source]
        output = tmp_path_factory.mktemp(source) / "same"
        convert(source, first, output, *rest, "--shards", 3, "--name", "same")
        return output

    return make


def test_workers_that_share_nothing_but_the_store(
    store_place: Place,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Callable[[str], Path],
) -> None:
    assert_shared_by_the_store(store_place, cache, monkeypatch, model, "csv", "engine")


@pytest.mark.parametrize("store_place", ["s3"], indirect=True)
@pytest.mark.parametrize(
    ("source", "exchange"),
    [
        ("csv", "scratch"),
        ("cifar", "scratch"),
        ("images", "engine"),
        ("images", "reference"),
    ],
)
def test_every_source_and_exchange_needs_no_shared_folder(
    store_place: Place,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Callable[[str], Path],
    source: str,
    exchange: str,
) -> None:
    assert_shared_by_the_store(store_place, cache, monkeypatch, model, source, exchange)


def assert_shared_by_the_store(
    store_place: Place,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Callable[[str], Path],
    source: str,
    exchange: str,
) -> None:
    """Facts, rejects, sorted runs and inventory go through the store."""
    first, *rest = INPUTS[source]
    job = [*rest, "--shards", 3, "--name", "same"]
    local, kept = Workspace.local_path, set()

    def noting(self: Workspace, name: str) -> Path:
        kept.add(name.split("/")[0])
        return local(self, name)

    monkeypatch.setattr(Workspace, "local_path", noting)
    job += ["--exchange", exchange]
    ran = to_store(store_place, source, first, job, beam=["--", *PORTABLE])
    assert ran.status == 0, ran.err
    if store_place.kind != "local":
        assert kept <= {"", "errors"}  # the launcher's own folder, an earlier try's
    assert published(store_place) == local_files(model(source))
    assert not [path for path in cache.rglob("*") if path.is_file()]
    again = to_store(store_place, source, first, job, beam=["--", *PORTABLE])
    assert "this dataset already exists" in again.err


@pytest.fixture(scope="module")
def eight_shards(
    mixed: MixedInput, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What a dataset of the mixed table holds that no engine had in its hands."""
    output = tmp_path_factory.mktemp("eight") / "m"
    convert("csv", *mixed.files, output, "--shards", 8)
    return contents(output)


def test_too_many_rejects_stop_the_run_before_a_row_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2\n")
    monkeypatch.setattr("recordmill.beam_jobs.pipelines.convert.send_range", None)
    ran = recordmill("convert", "csv", rows, tmp_path / "out", *ENGINE)
    assert ran.status == 65
    assert "1 of 2 rows rejected (limit 0)" in ran.err
    assert_unpublished(tmp_path / "out")


@pytest.mark.usefixtures("grouping")
def test_a_shard_whose_rows_are_all_rejected_is_written_too(tmp_path: Path) -> None:
    """Images are planned unread, so a shard may turn out to be empty."""
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(b"no image" * 50)
    (image, *_) = sorted((SAMPLES / "images").rglob("*.jpg"))
    (folder / "9.jpg").write_bytes(image.read_bytes()[:520])
    (folder / "8.jpg").write_bytes(image.read_bytes())
    found = []
    for exchange in ("reference", "engine", "scratch"):
        output = tmp_path / exchange / "out"
        options = ["--shards", 4, "--max-rejects", 4, "--exchange", exchange]
        convert("images", tmp_path / "in", output, *options)
        assert_whole(output)
        files = contents(output)
        found.append({n: d for n, d in files.items() if not n.startswith("rejects/")})
    assert found[1] == found[0] == found[2]
    records = manifest_of(tmp_path / "engine" / "out")["splits"]["train"]["shards"]
    assert min(shard["records"] for shard in records) == 0


@pytest.mark.usefixtures("grouping")
def test_goes_on_from_what_is_finished(
    tmp_path: Path,
    mixed: MixedInput,
    eight_shards: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ranges are not measured again, finished shards not sent; the bytes are the same."""
    job: list[Argument] = [*mixed.files, tmp_path / "out", "--shards", 8, "--name", "m"]
    with failing("stage"):
        assert recordmill("convert", "csv", *job, *ENGINE).status == 1
    # As if the third shard had never been finished.
    (gone,) = tmp_path.glob("out/.recordmill/*/facts/shard-train-00002.json")
    gone.unlink()
    sent = []
    cut_block = engine_task.cut_block

    def noting(*arguments: object) -> object:
        for number, piece in cut_block(*arguments):  # type: ignore[arg-type]
            sent.append(number)
            yield number, piece

    monkeypatch.setattr("recordmill.transforms.tasks.convert_range.cut_block", noting)
    monkeypatch.setattr(
        "recordmill.transforms.tasks.convert_range.make_histogram", None
    )
    ran = recordmill("convert", "csv", *job, *ENGINE)
    assert ran.status == 0, ran.err
    assert set(sent) == {2}
    assert_whole(tmp_path / "out")
    assert contents(tmp_path / "out") == eight_shards


@pytest.mark.parametrize("kind", ["range-measured", "range-engine", "shard"])
def test_killed_when_the_first_of_a_kind_is_finished(
    tmp_path: Path, mixed: MixedInput, eight_shards: dict[str, str], kind: str
) -> None:
    output = tmp_path / "out"
    job = [*mixed.files, output, "--shards", 8, "--name", "m", *ENGINE]
    with started("convert", "csv", *job) as process:
        pattern = f".recordmill/*/facts/{kind}-*.json"
        wait_until(lambda: list(output.glob(pattern)), process)
        kill(process)
    assert not (output / "manifest.json").exists()
    convert("csv", *job)
    assert_whole(output)
    assert contents(output) == eight_shards


@pytest.mark.usefixtures("grouping")
def test_pieces_that_come_twice(
    tmp_path: Path,
    mixed: MixedInput,
    eight_shards: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twice(*arguments: object) -> object:
        for pair in cut_block(*arguments):  # type: ignore[arg-type]
            yield from (pair, pair)

    cut_block = engine_task.cut_block
    monkeypatch.setattr("recordmill.transforms.tasks.convert_range.cut_block", twice)
    convert("csv", *mixed.files, tmp_path / "m", "--shards", 8, *ENGINE)
    assert contents(tmp_path / "m") == eight_shards
    # One range, so that a shard's only piece comes twice.
    convert("csv", IRIS, tmp_path / "iris", "--shards", 4, *ENGINE)
    convert("csv", IRIS, tmp_path / "model" / "iris", "--shards", 4)
    assert contents(tmp_path / "iris") == contents(tmp_path / "model" / "iris")


def test_a_bundle_that_ends_before_all_pieces_of_a_shard_came(
    tmp_path: Path, grouping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Flink 2, which ends bundles by time: what the bundle held is lost."""
    cut_block = engine_task.cut_block
    monkeypatch.setattr(
        "recordmill.transforms.tasks.convert_range.cut_block",
        lambda *arguments: list(cut_block(*arguments, piece_bytes=2000))[:-1],
    )
    job = ["convert", "csv", IRIS, tmp_path / grouping / "out", "--shards", 2]
    ran = recordmill(*job, *ENGINE)
    assert ran.status == 1
    assert "shard-train-00001: the runner gave 72 of 75 rows in one bundle" in ran.err
    assert "Use --exchange scratch" in ran.err
    assert_unpublished(tmp_path / grouping / "out")
    assert recordmill(*job, "--exchange", "scratch").status == 0


@pytest.mark.usefixtures("grouping")
def test_a_shard_of_more_records_than_a_writer_holds(
    tmp_path: Path,
    mixed: MixedInput,
    eight_shards: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They lie in a file without a name meanwhile."""
    save = Mock(wraps=pieces.append_run)
    monkeypatch.setattr(pieces, "append_run", save)
    monkeypatch.setattr(pieces.ShardPieces.__init__, "__defaults__", (None, 2000))
    convert("csv", *mixed.files, tmp_path / "m", "--shards", 8, *ENGINE)
    assert save.call_count > 2 * 8
    assert_whole(tmp_path / "m")
    assert contents(tmp_path / "m") == eight_shards


def test_flink_has_no_bundle_for_each_shard_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recordmill.beam_jobs.pipelines.group_by_shard.is_flink", lambda _: True
    )
    job = ["convert", "csv", IRIS, tmp_path / "out"]
    ran = recordmill(*job, *ENGINE, "--", "--streaming")
    assert ran.status == 2
    assert "leave out `--streaming`, or use --exchange scratch" in ran.err
    assert_unpublished(tmp_path / "out")
    convert("csv", IRIS, tmp_path / "out", *ENGINE)
    convert(
        "csv", IRIS, tmp_path / "files", "--exchange", "scratch", "--", "--streaming"
    )


def test_a_range_that_gives_more_than_flink_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recordmill.beam_jobs.pipelines.convert.is_flink", lambda _: True
    )
    monkeypatch.setattr(
        "recordmill.beam_jobs.pipelines.convert.FLINK_BUNDLE_BYTES", 5000
    )
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", *ENGINE)
    assert ran.status == 65
    assert "the records are larger than 5.0 kB, the limit" in ran.err
    assert "--exchange scratch" in ran.err
    assert_unpublished(tmp_path / "out")


SENDING = "recordmill.beam_jobs.pipelines.convert.send_range"


def test_a_side_file_that_went_between_the_two_readings(tmp_path: Path) -> None:
    """Read to be measured, so whoever rejects it now does not know its row's shard."""
    folder, schema = tmp_path / "in", tmp_path / "schema.yaml"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.bin").write_bytes(b"%d" % number)
    (folder / "rows.csv").write_text("a\n" + "".join(f"{n}.bin\n" for n in range(8)))
    schema.write_text("features:\n  a: {dtype: bytes, bytes_from: path}\n")

    def losing(*arguments: object) -> object:
        (folder / "3.bin").unlink()
        return engine_task.send_range(*arguments)  # type: ignore[arg-type]

    job = [folder / "rows.csv", tmp_path / "out", "--schema", schema]
    with replaced(SENDING, losing):
        ran = recordmill("convert", "csv", *job, "--max-rejects", 3, *ENGINE)
    assert ran.status == 75
    assert "changed during the run: 1 reject, before 0" in ran.err
    assert_unpublished(tmp_path / "out")


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ("a\n1\nx\n", "changed during the run: a column has other types"),
        ("a\n123\n", "changed during the run: 1 row, before 2"),
    ],
)
def test_a_file_that_changed_between_its_two_readings(
    tmp_path: Path, now: str, message: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a\n1\n2\n")
    before = rows.stat().st_mtime_ns

    def changing(*arguments: object) -> object:
        rows.write_text(now)
        # Of the same size and time: only what is read tells that it is another file.
        os.utime(rows, ns=(before, before))
        return engine_task.send_range(*arguments)  # type: ignore[arg-type]

    with replaced(SENDING, changing):
        ran = recordmill("convert", "csv", rows, tmp_path / "out", *ENGINE)
    assert ran.status == 75
    assert message in ran.err
    assert_unpublished(tmp_path / "out")
