"""What a run staged is there when it commits, or nothing is published; the next run mends it."""

from __future__ import annotations

import pytest
from adversary import Actor
from adversary_runs import World

from recordmill.schemas.errors import BusyError, OutputError
from recordmill.schemas.manifest import Manifest

STAGED = {
    "run.json": "run.json: not the file that this run staged",
    "dataset_info.json": "dataset_info.json: not the file that this run staged",
    "rejects/rows-00.jsonl": "rejects: 0 bytes, expected 58",
    "d-train.tfrecord-00001-of-00002": "is missing, the manifest records 34 bytes",
}


def staged_file(world: World, run: Actor, name: str) -> str:
    """The file of that name, as soon as all is staged."""
    files = world.baton.files
    while not any(file.endswith("/staging/manifest.json") for file in files):
        world.baton.turn(run)
    (staged,) = (file for file in files if file.endswith(f"/staging/{name}"))
    return staged


@pytest.mark.parametrize("name", STAGED)
def test_a_staged_file_that_is_gone(name: str) -> None:
    """Whenever it goes; also one that the manifest does not name, like run.json."""
    for turns in range(99):
        world = World()
        run, files = world.publish("x"), world.baton.files
        staged = staged_file(world, run, name)
        for _ in range(turns):
            world.baton.turn(run)
        if staged not in files:  # the commit has taken it
            world.baton.end_all()
            break
        del files[staged]
        world.baton.finish(run)
        if run.result is None:
            assert isinstance(run.error, BusyError)
            assert str(run.error).endswith("run again")
            assert "manifest.json" not in files
            if not turns:
                assert STAGED[name] in str(run.error)
        again = world.publish("x")
        world.baton.finish(again)
        assert isinstance(again.result, Manifest)
        assert again.result.rejects is not None
        rejects = [files[name] for name in files if name.startswith("rejects/")]
        assert sum(map(len, rejects)) == again.result.rejects.bytes
        world.check_end()
    else:
        pytest.fail("never taken")


@pytest.mark.parametrize("size", [None, 33, 35])
def test_a_shard_that_is_damaged_before_it_is_staged(size: int | None) -> None:
    """It goes, to be written again; the other one stays."""
    world = World()
    run, files = world.publish("x"), world.baton.files
    while not any(file.endswith("/rejects/rows-00.jsonl") for file in files):
        world.baton.turn(run)
    staged = [file for file in files if ".tfrecord" in file]
    first = next(file for file in staged if file.endswith("00000-of-00002"))
    data = files.pop(first)
    if size is not None:
        files[first] = (data + b"!")[:size]
    world.baton.finish(run)
    assert isinstance(run.error, OutputError)
    told = "missing: expected" if size is None else f"{size} bytes, expected 34"
    assert f"{first}: {told}" in str(run.error)
    assert "(1 problem in all). The damaged files were removed; run" in str(run.error)
    assert {file for file in files if ".tfrecord" in file} == {*staged} - {first}
    assert not any(file.endswith("manifest.json") for file in files)
    again = world.publish("x")
    world.baton.finish(again)
    assert isinstance(again.result, Manifest), again.error
    world.check_end()


def test_the_first_of_two_that_are_gone() -> None:
    world = World()
    run, files = world.publish("x"), world.baton.files
    for name in ("run.json", "dataset_info.json"):
        del files[staged_file(world, run, name)]
    world.baton.finish(run)
    assert "/dataset_info.json: not the file that this run staged" in str(run.error)
