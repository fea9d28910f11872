"""What is told of inputs, options and files that are not as they were."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from adversary_runs import World
from adversary_schedules import with_dataset
from archive_tools import tar_of
from content_tools import kept_files

from recordmill.schemas.errors import (
    BusyError,
    ChangedInputError,
    InputError,
    OutputRefusedError,
)
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.commit import inputs as commit_inputs
from recordmill.transforms.commit import staging as input_check
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.cleanup import clean
from recordmill.transforms.commit.inputs import (
    ContentComparison,
    ConvertedFile,
    _file_changes,
    new_files,
    option_changes,
    parse_inputs,
)
from recordmill.transforms.commit.staging import require_same_inputs
from recordmill.transforms.commit.versions import read_latest
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.inventory import NO_FILES, Inventory
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tfrecord import crc32c


@pytest.mark.parametrize(
    ("names", "told"),
    [("a", "(a)"), ("abc", "(a, b, c)"), ("abcd", "(a, b, c and 1 more)")],
)
def test_files_of_somebody_else(tmp_path: Path, names: str, told: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".recordmill").mkdir()
    (tmp_path / ".recordmill" / "x").touch()
    with pytest.raises(OutputRefusedError) as caught:
        check_output(LocalStore(str(tmp_path)), "f" * 32, overwrite=True)
    assert f"{tmp_path}: is not empty {told} and does not contain a dataset" in str(
        caught.value
    )


HEAD = '{"recordmill": 1, "fingerprint": "", "job": {}}'
FINE = '["a", 1, "v"]'


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "expected lines of JSON, compressed with gzip. "),
        (["{}"], "line 1: expected recordmill, fingerprint and job, found {}. "),
        ([HEAD, FINE, "[1]"], "line 3: expected [path, size, version], found [1]. "),
        ([HEAD, '[1, 1, ""]'], "line 2: expected [path, size, version], found [1, 1"),
        ([HEAD, '["a", "b", ""]', FINE], "line 2: expected [path, size, version]"),
        ([HEAD, '["a", null, ""]', FINE], "line 2: expected [path, size, version]"),
        ([HEAD, '["b", 0, "v"]', FINE, "x" * 99], "line 4: expected [path, size, "),
        ([HEAD, FINE, "x" * 99], f"found {'x' * 80}. "),
        (["y" * 99, FINE], "line 1: expected recordmill, fingerprint and job, found y"),
        (["y" * 99, FINE], f"found {'y' * 80}. "),
    ],
)
def test_a_line_of_an_inventory(lines: list[str], told: str) -> None:
    data = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    with pytest.raises(OutputRefusedError) as caught:
        parse_inputs(data, "x")
    assert str(caught.value).startswith("x: not a valid inventory of inputs: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(("number", "more"), [(1, 0), (3, 0), (4, 1), (5, 2), (11, 8)])
def test_inputs_that_changed(tmp_path: Path, number: int, more: int) -> None:
    files = {}
    for index in range(number + 2):
        (tmp_path / f"{index:02}").write_bytes(b"abc")
        status = (tmp_path / f"{index:02}").stat()
        files[f"{index:02}"] = ConvertedFile(
            3, str(status.st_mtime_ns), is_sidecar=False
        )
    for index in range(number):
        (tmp_path / f"{index:02}").write_bytes(b"abcd")
    with pytest.raises(ChangedInputError) as caught:
        require_same_inputs(kept_files(files), str(tmp_path), [], NO_OPTIONS)
    lines = str(caught.value).splitlines()
    plural = "s" if number > 1 else ""
    assert lines[0] == f"{number} input file{plural} changed while the run read them:"
    shown = min(number, 3)
    assert lines[1 : shown + 1] == [
        f"  {tmp_path}/{index:02}: 4 bytes, was 3 when the run began"
        for index in range(shown)
    ]
    others = f"  and {more} other file{'s' if more > 1 else ''}"
    assert lines[shown + 1 :] == [
        *([others] if more else []),
        "Run the same command again when nothing writes to the inputs",
    ]


def test_every_kind_of_change_of_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side files may change, and what could not be read before."""
    names = ["gone", "newer", "shorter", "touched", "same", "side", "unread"]
    files = {}
    for name in names:
        (tmp_path / name).write_bytes(b"abc")
        version = str((tmp_path / name).stat().st_mtime_ns)
        files[name] = ConvertedFile(3, version, name == "side", name == "unread")
    os.utime(tmp_path / "touched", ns=(1, 1))
    os.utime(tmp_path / "newer", ns=(1, 1 << 62))
    (tmp_path / "shorter").write_bytes(b"ab")
    os.utime(tmp_path / "shorter", ns=(1, int(files["shorter"].version or 0)))
    for name in ("gone", "side", "unread"):
        (tmp_path / name).unlink()
    monkeypatch.setattr(input_check, "_SHOWN", 4)
    with pytest.raises(ChangedInputError) as caught:  # the clock of its disk is behind
        require_same_inputs(
            kept_files(files), f"{tmp_path}/", [], NO_OPTIONS, since=1e12
        )
    assert str(caught.value).splitlines()[1:-1] == [
        f"  {tmp_path}/gone: No such file or directory",
        f"  {tmp_path}/newer: was written again (with 3 bytes as before)",
        f"  {tmp_path}/shorter: 2 bytes, was 3 when the run began",
        f"  {tmp_path}/touched: was written again (with 3 bytes as before)",
    ]


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 8 << 20])
def test_files_that_were_touched_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    """What was read of them tells that they are the same, if anything was read."""
    monkeypatch.setattr(commit_inputs, "PART_BYTES", read_bytes)
    files, known = {}, {}
    for name, data, stop in (
        ("all", b"abcde", 5),
        ("none", b"abcde", 0),
        ("empty", b"", 0),
    ):
        (tmp_path / name).write_bytes(data)
        version = str((tmp_path / name).stat().st_mtime_ns)
        files[name] = ConvertedFile(len(data), version, is_sidecar=False)
        content = f"crc32c:{crc32c(data):08x}" if stop else ""
        known[name] = files[name]._replace(content=content)
    require_same_inputs(kept_files(known), str(tmp_path), [], NO_OPTIONS, since=1.0)
    (tmp_path / "all").write_bytes(b"abcdf")
    os.utime(tmp_path / "all", ns=(1, int(files["all"].version or 0)))
    require_same_inputs(
        kept_files(known), str(tmp_path), [], NO_OPTIONS
    )  # not known since
    require_same_inputs(kept_files(known), str(tmp_path), [], NO_OPTIONS, since=1e12)
    touched = (tmp_path / "all").stat().st_ctime
    require_same_inputs(
        kept_files(known), str(tmp_path), [], NO_OPTIONS, touched + 0.01
    )
    for since in (1.0, touched - 0.5, touched - 0.01):
        with pytest.raises(
            ChangedInputError, match="all: was replaced by another file of the same"
        ):
            require_same_inputs(kept_files(known), str(tmp_path), [], NO_OPTIONS, since)


def test_an_archive_that_was_touched_alone(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of({"1.txt": b"abc", "2.txt": b"12345"}))
    root, found = list_inputs([str(archive)], NO_OPTIONS)
    files = {each.path: ConvertedFile(each.size, each.version, False) for each in found}
    known = {
        path: file._replace(content=f"crc32c:{crc32c(data):08x}")
        for (path, file), data in zip(files.items(), (b"abc", b"12345"), strict=True)
    }
    require_same_inputs(kept_files(known), root, [], NO_OPTIONS, since=1.0)
    stamp = archive.stat().st_mtime_ns
    archive.write_bytes(tar_of({"1.txt": b"abc", "2.txt": b"12346"}))
    os.utime(archive, ns=(1, stamp))
    with pytest.raises(
        ChangedInputError, match=r"a\.tar: was replaced by another file"
    ):
        require_same_inputs(kept_files(known), root, [], NO_OPTIONS, since=1.0)


def now(path: str, size: int = 1, version: str = "v", root: str = "/in") -> InputFile:
    return InputFile(path, f"{root}/{path}", size, version)


def test_files_of_an_append_that_are_missing() -> None:
    kept = {
        name: ConvertedFile(1, "v", is_sidecar=False)
        for name in ("a", "b", "c", "d", "e")
    }
    check = ContentComparison()
    with pytest.raises(InputError) as caught:
        new_files(
            kept_files(kept),
            Inventory.from_files([now("a", 2), now("e")]),
            NO_FILES,
            "out",
            check,
        )
    assert str(caught.value).startswith(
        "out: of its 5 files, 3 are missing (b, c, d) and 1 changed (a)."
    )
    left_out = frozenset("bx")
    with pytest.raises(InputError) as caught:
        new_files(
            kept_files(kept),
            Inventory.from_files([now("a", 2), now("e")]),
            NO_FILES,
            "out",
            check,
            left_out=left_out,
        )
    told = str(caught.value)
    assert (
        "2 are missing (c, d), 1 left out by `exclude` (b) and 1 changed (a)." in told
    )
    assert ": restore these files, name fewer files in `exclude`, so that" in told
    with pytest.raises(InputError) as caught:
        new_files(
            kept_files(kept),
            Inventory.from_files([now("2026/a"), now("x")]),
            NO_FILES,
            "out",
            check,
        )
    assert "5 are missing (a, b, c and 2 more). An append keeps" in str(caught.value)
    assert "now /in/: was it a different folder before?" in str(caught.value)
    many = {f"{number}": kept["a"] for number in range(300)}
    with pytest.raises(
        InputError, match=r"300 are missing .*was it a different folder before"
    ):
        new_files(
            kept_files(many), Inventory.from_files([now("x")]), NO_FILES, "out", check
        )
    with pytest.raises(InputError) as caught:
        new_files(kept_files(kept), Inventory.from_files([]), NO_FILES, "out", check)
    assert "was it a different folder before" not in str(caught.value)


def test_files_that_differ_from_those_of_a_dataset() -> None:
    kept = {
        name: ConvertedFile(1, "v", is_sidecar=False)
        for name in ("a", "b", "gone 1", "gone 2", "same")
    }
    files = [now("a", 2), now("b", 1, "w"), now("same"), *map(now, "wxyz")]
    assert list(
        _file_changes(
            kept_files(kept), Inventory.from_files(files), ContentComparison()
        )
    ) == [
        "4 new (w, x, y and 1 more)",
        "2 gone (gone 1, gone 2)",
        "1 changed (a)",
        "1 written again with the same size (b)",
    ]


CHANGES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"seed": 1}, {"seed": 1}, []),
    ({"seed": 1}, {"seed": 2}, ["`seed=1`, now `seed=2`"]),
    ({"a": None}, {}, []),
    ({}, {"label": "x y"}, ['no `label`, now `label` "x y"']),
    ({}, {"label": ""}, ['no `label`, now `label` ""']),
    ({}, {"label": "`"}, ['no `label`, now `label` "`"']),
    ({"b": 1, "a": 1}, {}, ["`a=1`, now no `a`", "`b=1`, now no `b`"]),
    ({"source": "csv"}, {"source": "cifar"}, ["the input format csv, now cifar"]),
    ({"declared": {"x": 1}}, {}, ["the declared schema"]),
    (
        {"source_options": {"header": True}},
        {"source_options": {"header": False}},
        ["`header=true`, now `header=false`"],
    ),
    (
        {"sharding": {"num_shards": 2, "shard_bytes": None}},
        {"sharding": {"num_shards": None, "shard_bytes": 9}},
        ["`shards=2`, now `shard_size=9`"],
    ),
    (
        {"splits": [{"name": "train", "fraction": "0.9"}]},
        {},
        ["`splits=train=0.9`, now `splits=train=1`"],
    ),
    (
        {"map": {"function": "m:f", "checksum": "0123456789"}},
        {},
        ["the `map` function m:f (checksum 01234567), now no `map`"],
    ),
]


@pytest.mark.parametrize(("before", "after", "told"), CHANGES)
def test_options_that_differ(
    before: dict[str, Any], after: dict[str, Any], told: list[str]
) -> None:
    assert list(option_changes(before, after)) == told


def test_who_lost_takes_his_files_away_at_once() -> None:
    """Two of one generation: what the loser put beside the dataset has no use."""
    world = World()
    with_dataset(world)
    loser = world.publish("x", overwrite=True)
    winner = world.overtake(loser, before="swap manifest.json")
    assert isinstance(loser.error, BusyError)
    assert isinstance(winner.result, Manifest)
    marks = {name.split(".g")[1][:14] for name in world.baton.files if ".g" in name}
    assert marks == {winner.result.commit_id[1:]}
    world.check_end()


def test_the_first_run_that_was_killed_in_its_commit(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    for run in ("1" * 16, "2" * 16):
        store.put_bytes(b"{}", f".recordmill/{run}/staging/manifest.json")
    for do in (
        lambda: clean(store),
        lambda: clean(store, dry_run=True),
        lambda: check_output(store, "f" * 32, overwrite=False),
    ):
        with pytest.raises(OutputRefusedError, match=r"1{16}/staging/manifest\.json"):
            do()
    assert check_output(store, "f" * 32, overwrite=True) is None
    assert len(store.list()) == 2


@pytest.mark.parametrize(
    "data", [b"x" * 100, b"{}", b"[]", b"3", b'{"version": 1}', b'{"version": "1.0"}']
)
def test_what_latest_json_holds_instead(tmp_path: Path, data: bytes) -> None:
    store = LocalStore(str(tmp_path))
    store.put_bytes(data, "latest.json")
    with pytest.raises(OutputRefusedError) as caught:
        read_latest(store)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/latest.json: not a valid latest.json: ")
    assert message.endswith(". Remove the file and run again")
    (tmp_path / "latest.json").unlink()
    assert read_latest(store) is None


def test_a_dataset_is_known_by_its_fingerprint(tmp_path: Path) -> None:
    world = World()
    with_dataset(world)
    manifest = read_manifest(world.store)
    key = "".join(list(manifest.fingerprint))
    assert check_output(world.store, key, overwrite=False) == manifest
    for other in ("0" * 32, "f" * 32):
        assert check_output(world.store, other, overwrite=True) is None
        with pytest.raises(OutputRefusedError, match="contains another dataset"):
            check_output(world.store, other, overwrite=False)
    assert check_output(world.store, "0" * 32, overwrite=False, base=key) is None
    with pytest.raises(BusyError, match="changed while the append was prepared"):
        check_output(world.store, "0" * 32, overwrite=False, base="f" * 32)
