"""What a run staged is there when it commits, or nothing is published."""

from __future__ import annotations

import pytest
from adversary_runs import World

from recordmill.schemas.errors import BusyError, OutputRefusedError


@pytest.mark.parametrize("name", ["run.json", "dataset_info.json"])
def test_a_staged_file_that_is_gone(name: str) -> None:
    """Also one that the manifest does not name, as it tells when the run was."""
    world = World()
    run, files = world.publish("x"), world.baton.files
    while not any(file.endswith("/staging/manifest.json") for file in files):
        world.baton.turn(run)
    (staged,) = (file for file in files if file.endswith(f"/staging/{name}"))
    del files[staged]
    world.baton.finish(run)
    assert isinstance(run.error, BusyError)
    assert f"{name}: not the file that this run staged" in str(run.error)
    assert "manifest.json" not in files


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "rejects/rows-00.jsonl",
            "rejects: 0 bytes, expected 58. Nothing was published",
        ),
        ("d-train.tfrecord-00001-of-00002", "is missing, the manifest says 34 bytes"),
    ],
)
def test_staged_data_that_is_gone(name: str, told: str) -> None:
    world = World()
    run, files = world.publish("x"), world.baton.files
    while not any(file.endswith("/staging/manifest.json") for file in files):
        world.baton.turn(run)
    (staged,) = (file for file in files if file.endswith(f"/staging/{name}"))
    del files[staged]
    world.baton.finish(run)
    assert isinstance(run.error, OutputRefusedError)
    assert told in str(run.error)
    assert "manifest.json" not in files
