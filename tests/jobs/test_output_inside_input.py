"""An output folder below an input: each run converts the same files, and none of its own."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import fsspec
import pytest
from job_tools import IRIS, Argument, contents, convert, recordmill
from pixel_zoo import IMAGES

IMAGE, _ = IMAGES["rgb.jpg"]
FILES = {
    "csv": {"a.csv": IRIS.read_bytes()},
    "images": {"cat/1.jpg": IMAGE, "dog/2.jpg": IMAGE},
}


def fill(folder: Path, source: str) -> Path:
    for name, data in FILES[source].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def status(source: str, *arguments: Argument) -> str:
    ran = recordmill("convert", source, *arguments, "--json")
    assert ran.status == 0, ran.err
    found: str = json.loads(ran.out)["status"]
    return found


@pytest.mark.parametrize("more", [[], ["--dataset-version", "auto"], ["--append"]])
@pytest.mark.parametrize("source", FILES)
def test_the_second_run_is_the_first(
    tmp_path: Path, source: str, more: list[str]
) -> None:
    data = fill(tmp_path / "data", source)
    job: list[Argument] = [data, data / "out", *more]
    assert status(source, *job) == "done"
    apart = tmp_path / "apart"
    convert(source, fill(tmp_path / "other", source), apart, *more, "--name", "out")
    first = contents(data / "out")
    assert {n: h for n, h in first.items() if "inventory" not in n} == {
        n: h for n, h in contents(apart).items() if "inventory" not in n
    }
    assert status(source, *job) == "unchanged"
    assert contents(data / "out") == first
    told = recordmill("convert", source, *job).err
    assert "Warning: passed over: " in told
    assert f"in the output folder {data / 'out'}, as it lies inside the input" in told


@pytest.mark.parametrize("pattern", ["data/*", "data/**", "data"])
def test_patterns_and_what_a_shell_makes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    fill(tmp_path / "data", "images")
    monkeypatch.chdir(tmp_path)
    assert status("images", pattern, "data/out") == "done"
    assert status("images", pattern, "data/out") == "unchanged"
    # A shell would have written the output, too, among the folders of classes.
    names: list[Argument] = ["data/cat", "data/dog", "data/out"]
    assert status("images", *names, "data/out") == "unchanged"


def test_a_single_folder_beside_the_output_stays_the_root(tmp_path: Path) -> None:
    table = fill(tmp_path / "data" / "tables", "csv")
    output = tmp_path / "data" / "out"
    assert status("csv", table, output) == "done"
    assert status("csv", table, output, output) == "unchanged"


def test_links_lead_to_the_output(tmp_path: Path) -> None:
    data = fill(tmp_path / "data", "csv")
    (tmp_path / "out").mkdir()
    (data / "results").symlink_to(tmp_path / "out")
    for expected in ("done", "unchanged"):
        assert status("csv", data, tmp_path / "out") == expected
    by_link = [data, data / "results", "--name", "out"]
    assert status("csv", *by_link) == "unchanged"


@pytest.mark.parametrize("more", [[], ["--dataset-version", "auto"], ["--append"]])
def test_in_a_store(tmp_path: Path, more: list[str]) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    system = fsspec.filesystem("memory")
    for name, data in FILES["images"].items():
        system.pipe_file(f"{url}/{name}", data)
    job: list[Argument] = [url, f"{url}/out", *more]
    assert status("images", *job) == "done"
    assert status("images", *job) == "unchanged"
    system.pipe_file(f"{url}/cat/3.jpg", IMAGE)
    if more:
        assert status("images", *job) == ("done")
        assert status("images", *job) == "unchanged"


def test_only_new_files_outside_are_appended(tmp_path: Path) -> None:
    data = fill(tmp_path / "data", "csv")
    job: list[Argument] = [data, data / "out", "--append"]
    convert("csv", *job)
    shutil.copy(IRIS, data / "b.csv")
    plan = json.loads(recordmill("convert", "csv", *job, "--plan", "--json").out)
    assert plan["warnings"][0].startswith("passed over: ")
    convert("csv", *job)
    assert status("csv", *job) == "unchanged"


def test_what_is_named_in_the_output_is_refused(tmp_path: Path) -> None:
    data = fill(tmp_path / "data", "csv")
    convert("csv", data, data / "out")
    before = contents(data)
    refused = {
        "is an input, but lies inside the output folder": [
            data / "a.csv",
            data / "out" / "manifest.json",
        ],
        "is the input and the output folder": [data / "out"],
        "no files but": [f"{data}/o*"],
    }
    for message, inputs in refused.items():
        ran = recordmill("convert", "csv", *inputs, data / "out")
        assert ran.status in (2, 65)
        assert message in ran.err
    assert contents(data) == before
    assert status("csv", f"{data}/**", data / "out") == "unchanged"  # the way out


def test_links_that_are_passed_over_are_told(tmp_path: Path) -> None:
    data = fill(tmp_path / "data", "csv")
    for number in range(7):
        (data / f"back{number}").symlink_to(data)
    ran = recordmill("convert", "csv", data, tmp_path / "out")
    assert f"{data}/back4: a link back to {data}, a folder above it" in ran.err
    assert "2 other links passed over" in ran.err
    assert status("csv", data, tmp_path / "out") == "unchanged"
