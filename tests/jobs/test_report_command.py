"""`recordmill report`: where the page goes, and what is said if there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_tools import IRIS, convert, recordmill, shards_of
from store_servers import Place
from store_tools import options_of, to_store


def test_a_page_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iris: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = recordmill("report", iris)
    assert ran.status == 0, ran.err
    assert ran.out.startswith("report.html: ")
    first = (tmp_path / "report.html").read_bytes()
    assert b"<h1>iris 1.0.0</h1>" in first
    assert recordmill("report", iris).status == 0  # it may be replaced
    assert (tmp_path / "report.html").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_json(tmp_path: Path, iris: Path) -> None:
    ran = recordmill("report", iris, "--output", tmp_path / "page.html", "--json")
    assert json.loads(ran.out) == {
        "file": str(tmp_path / "page.html"),
        "bytes": (tmp_path / "page.html").stat().st_size,
    }
    assert ran.err == ""


@pytest.mark.parametrize("remedy", ["another", "remove"])
def test_no_other_file_is_replaced(tmp_path: Path, iris: Path, remedy: str) -> None:
    page = tmp_path / "index.html"
    page.write_text("<html>mine</html>")
    ran = recordmill("report", iris, "-o", page)
    assert ran.status == 2
    assert f"{page}: is there already" in ran.err
    assert "Choose another file with -o, or remove it" in ran.err
    assert page.read_text() == "<html>mine</html>"
    if remedy == "remove":
        page.unlink()
    else:
        page = tmp_path / "other.html"
    assert recordmill("report", iris, "-o", page).status == 0


def test_places_that_no_page_can_have(tmp_path: Path, iris: Path) -> None:
    ran = recordmill("report", iris, "-o", tmp_path / "none" / "page.html")
    assert ran.status == 2
    assert f"there is no folder '{tmp_path / 'none'}'" in ran.err
    ran = recordmill("report", iris, "-o", "s3://bucket/page.html")
    assert ran.status == 2
    assert "a page is written to a local file" in ran.err
    assert recordmill("report", iris, "-o", tmp_path).status == 2


def test_what_is_no_dataset_and_a_damaged_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = recordmill("report", tmp_path, "-o", page)
    assert ran.status == 1
    assert "no manifest.json" in ran.err
    convert("csv", IRIS, tmp_path / "iris")
    (shard,) = shards_of(tmp_path / "iris")
    data = bytearray(shard.read_bytes())
    data[-10] ^= 1
    shard.write_bytes(data)
    ran = recordmill("report", tmp_path / "iris", "-o", page)
    assert ran.status == 1
    assert shard.name in ran.err
    assert not page.exists()


def test_the_code_on_the_page_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from recordmill.beam_jobs.report.page import loading_snippets
    from recordmill.transforms.dataset.files import class_names, read_manifest
    from recordmill.transforms.storage import open_store

    snippets_of = {"none": 3, "gzip": 2, "array_record": 2}
    for kind, expected in snippets_of.items():
        folder = tmp_path / f'it\'s "{kind}"'
        option = "--container" if kind == "array_record" else "--compression"
        options = ["--name", "iris", option, kind]
        convert("csv", IRIS, folder, *options)
        store = open_store(str(folder))
        manifest = read_manifest(store)
        names = class_names(store, manifest)
        first, *others = loading_snippets(manifest, names, str(folder)).items()
        exec(compile(first[1], "page", "exec"), {})
        assert "species" in capsys.readouterr().out
        for snippet in others:  # that of tf.data runs in the tests of inspect
            compile(snippet[1], snippet[0], "exec")
        assert len(others) == expected - 1
        ran = recordmill("report", folder, "-o", tmp_path / "page.html")
        assert ran.status == 0, ran.err


@pytest.mark.parametrize("store_place", ["s3"], indirect=True)
@pytest.mark.usefixtures("cache")
def test_a_dataset_in_a_store(store_place: Place, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2,y\n3\n4,z\n")
    job = ["--shards", 2, "--max-rejects", 1, "--name", "rows"]
    assert to_store(store_place, "csv", rows, job).status == 0
    page = tmp_path / "page.html"
    reach = options_of(store_place.options)
    ran = recordmill("report", store_place.root, "-o", page, *reach)
    assert ran.status == 0, ran.err
    assert store_place.root in page.read_text()
    assert "rows.csv line 4" in page.read_text()
