"""What a dataset says of itself: texts and a card, which change no record."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from append_tools import stand
from fsspec.implementations.memory import MemoryFileSystem
from job_tools import IRIS, SAMPLES, Argument, convert, manifest_of, recordmill

from recordmill.schemas.errors import OutputError
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.storage import LocalStore

pytestmark = pytest.mark.usefixtures("without_beam")

TEXTS = {
    "description": "Flowers\n\nof three kinds: café",
    "license": "CC-BY-4.0",
    "citation": "@misc{iris}",
    "homepage": "https://example.org/iris",
    "contact": "me@example.org",
}
OPTIONS: list[Argument] = [
    word for name, text in TEXTS.items() for word in (f"--{name}", text)
]


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "croissant.json").read_text())
    return card


def require_sums(folder: Path) -> None:
    """Checks that the dataset is whole, and its card has what `hashlib` computes."""
    assert verify_dataset(str(folder)).is_undamaged
    sums = {file["name"]: file["sha256"] for file in card_of(folder)["distribution"]}
    shards = [
        shard
        for split in manifest_of(folder)["splits"].values()
        for shard in split["shards"]
    ]
    assert sums == {shard["file"]: shard["sha256"] for shard in shards}
    for name, found in sums.items():
        assert found == sha256((folder / name).read_bytes()).hexdigest()


def test_texts_are_in_every_file_that_has_a_place_for_them(tmp_path: Path) -> None:
    plain, said = tmp_path / "plain" / "iris", tmp_path / "said" / "iris"
    convert("csv", IRIS, plain)
    convert("csv", IRIS, said, *OPTIONS, "--card")
    manifest, before = manifest_of(said), manifest_of(plain)
    assert manifest["about"] == TEXTS
    assert manifest["fingerprint"] == before["fingerprint"]
    assert {"about", "croissant.json"}.isdisjoint({*before, *before["files"]})
    assert not (plain / "croissant.json").exists()
    assert '"sha256"' not in (plain / "manifest.json").read_text()
    info = json.loads((said / "dataset_info.json").read_text())
    assert info["description"] == TEXTS["description"]
    assert info["citation"] == TEXTS["citation"]
    assert info["location"] == {"urls": [TEXTS["homepage"]]}
    assert info["redistributionInfo"] == {"license": TEXTS["license"]}
    card = card_of(said)
    assert card["description"] == TEXTS["description"]
    assert card["license"] == "https://spdx.org/licenses/CC-BY-4.0"
    assert card["citeAs"] == TEXTS["citation"]
    assert card["url"] == TEXTS["homepage"]
    assert card["maintainer"]["name"] == TEXTS["contact"]
    require_sums(said)
    shown = recordmill("inspect", said).out
    assert "description: Flowers of three kinds: café" in shown
    assert "license: CC-BY-4.0" in shown
    recordmill("report", said, "-o", tmp_path / "page.html")
    assert "@misc{iris}" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "options",
    [
        ["--compression", "gzip", "--shards", 3],
        ["--container", "array_record", "--shards", 2],
        ["--exchange", "engine", "--index"],
    ],
)
def test_sums_are_those_of_the_files(tmp_path: Path, options: list[Argument]) -> None:
    convert("csv", IRIS, tmp_path / "iris", "--card", *options)
    require_sums(tmp_path / "iris")


def test_sums_of_images_by_reference(tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert("images", SAMPLES / "images", out, "--card", "--shards", 2)
    require_sums(out)
    splits, classes = card_of(out)["recordSet"]
    assert splits["data"] == [{"splits/name": "train", "splits/records": 10}]
    names = (out / "label.labels.txt").read_text().split()
    assert classes["data"] == [
        {"label/classes/name": name, "label/classes/value": value}
        for value, name in enumerate(names)
    ]


def test_another_description_leaves_every_shard_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "iris"
    convert("csv", IRIS, out, "--license", "MIT")
    before, shards = stand(out), manifest_of(out)["splits"]
    plan = recordmill("convert", "csv", IRIS, out, "--plan", *OPTIONS)
    assert "would publish a new description" in plan.out
    assert stand(out) == before
    ran = convert("csv", IRIS, out, *OPTIONS, "--json")
    assert json.loads(ran.out)["status"] == "described"
    manifest = manifest_of(out)
    assert (manifest["about"], manifest["splits"]) == (TEXTS, shards)
    assert verify_dataset(str(out)).is_undamaged
    files = {name for split in shards.values() for name in [split["shards"][0]["file"]]}
    assert {name: stand(out)[name] for name in files} == {n: before[n] for n in files}
    info = json.loads((out / "dataset_info.json").read_text())
    assert info["redistributionInfo"] == {"license": "CC-BY-4.0"}
    # The card comes later: the shards are read for it.
    said = convert("csv", IRIS, out, *OPTIONS, "--card").err
    assert "published a new description: card" in said
    require_sums(out)
    # What a job does not name stays, as of one that runs each night.
    for options in ([*OPTIONS, "--card"], [], ["--license", TEXTS["license"]]):
        again = convert("csv", IRIS, out, *options, "--json")
        assert json.loads(again.out)["status"] == "unchanged"
    assert "nothing to do" in recordmill("convert", "csv", IRIS, out, "--plan").out
    # The way to remove it.
    said = convert("csv", IRIS, out, "--overwrite", "--license", "MIT").err
    gone = ", ".join(f"without {name}" for name in TEXTS if name != "license")
    assert f"published a new description: license, {gone}, without card" in said
    convert("csv", IRIS, out, "--overwrite")
    assert "about" not in manifest_of(out)
    assert not (out / "croissant.json").exists()
    names = {"description", "citation", "location", "redistributionInfo"}
    assert names.isdisjoint(json.loads((out / "dataset_info.json").read_text()))
    assert verify_dataset(str(out)).is_undamaged
    assert not (out / ".recordmill").exists()


def test_an_append_keeps_what_is_said_and_sums_all_shards(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    shutil.copy(IRIS, source / "a.csv")
    convert("csv", source, out, *OPTIONS)
    shutil.copy(IRIS, source / "b.csv")
    convert("csv", source, out, "--append", "--card", "--license", "CC0-1.0")
    assert manifest_of(out)["about"] == TEXTS | {"license": "CC0-1.0"}
    require_sums(out)
    assert len(card_of(out)["distribution"]) == 2
    shutil.copy(IRIS, source / "c.csv")
    convert("csv", source, out, "--append")
    require_sums(out)
    assert len(card_of(out)["distribution"]) == 3
    ran = convert("csv", source, out, "--append", "--license", "MIT", "--json")
    assert json.loads(ran.out)["status"] == "described"
    assert manifest_of(out)["about"]["license"] == "MIT"
    assert card_of(out)["license"] == "https://spdx.org/licenses/MIT"
    require_sums(out)


@pytest.mark.parametrize(
    ("license_", "told"),
    [
        ("https://me:hunter2@example.org/license", "the URL contains a secret"),
        ("https://example.org/license?sig=hunter2", "the URL contains a secret"),
        ("((MIT AND ISC)", "expected an SPDX identifier"),
        ("MIT) AND (ISC", "expected an SPDX identifier"),
    ],
)
def test_a_license_has_no_secret_and_pairs_of_brackets(
    tmp_path: Path, license_: str, told: str
) -> None:
    out = tmp_path / "iris"
    ran = recordmill("convert", "csv", IRIS, out, "--license", license_)
    assert ran.status != 0
    assert told in ran.err
    assert "hunter2" not in ran.err
    assert not out.exists()
    convert("csv", IRIS, out, "--license", "(MIT AND ISC) OR (CC0-1.0)")


def test_a_replaced_dataset_takes_its_card_along(tmp_path: Path) -> None:
    out = tmp_path / "iris"
    convert("csv", IRIS, out, "--card")
    convert("csv", IRIS, out, "--card", "--seed", 2, "--overwrite")
    require_sums(out)
    convert("csv", IRIS, out, "--seed", 3, "--overwrite")
    assert not (out / "croissant.json").exists()


def test_a_card_that_recordmill_did_not_write_stays(tmp_path: Path) -> None:
    out = tmp_path / "iris"
    convert("csv", IRIS, out)
    (out / "croissant.json").write_text("{}")
    convert("csv", IRIS, out, "--seed", 2, "--overwrite")
    convert("csv", IRIS, out, "--seed", 2, "--license", "MIT")
    assert (out / "croissant.json").read_text() == "{}"


def test_shards_of_a_run_without_card_are_summed_when_it_resumes(
    tmp_path: Path,
) -> None:
    """The first run writes all shards, and then publishes nothing."""
    out, halves = tmp_path / "out", ["--split", "a=0.5", "--split", "b=0.5"]
    rows = tmp_path / "rows.csv"
    rows.write_text("x,y\n" + "1,2\n3,4\n5,6\n7,8\n" * 9)
    job: list[Argument] = [rows, out, *halves, "--split-exact"]
    ran = recordmill("convert", "csv", *job, "--duplicates", "fail")
    assert ran.status == 65
    assert list(out.glob(".recordmill/*/staging/*tfrecord*"))
    convert("csv", *job, "--card")
    require_sums(out)


def test_damage_is_found_before_it_gets_a_sum(tmp_path: Path) -> None:
    out = tmp_path / "iris"
    convert("csv", IRIS, out)
    (shard,) = out.glob("*tfrecord*")
    data = bytearray(shard.read_bytes())
    data[99] ^= 1
    shard.write_bytes(data)
    before = (out / "manifest.json").read_bytes()
    ran = recordmill("convert", "csv", IRIS, out, "--card")
    assert ran.status == 73
    assert "CRC-32C" in ran.err
    assert "convert again with --overwrite" in ran.err
    assert (out / "manifest.json").read_bytes() == before
    assert not (out / "croissant.json").exists()
    convert("csv", IRIS, out, "--card", "--overwrite")
    require_sums(out)


def test_a_version_is_described_in_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "iris"
    convert("csv", IRIS, out, "--dataset-version", "auto")
    convert("csv", IRIS, out, "--dataset-version", "auto", *OPTIONS, "--card")
    assert sorted(path.name for path in out.iterdir()) == ["1.0.0", "latest.json"]
    assert manifest_of(out / "1.0.0")["about"] == TEXTS
    require_sums(out / "1.0.0")


def test_a_job_file_says_it_in_lines(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        f"source: csv\ninputs: {IRIS}\noutput: out\ncard: true\n"
        "description: |\n  Two\n  lines\nlicense: 2026\n"
    )
    assert recordmill("run", job).status == 0
    about = manifest_of(tmp_path / "out")["about"]
    assert about == {"description": "Two\nlines", "license": "2026"}


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("homepage", "example.org", "--homepage: expected a URL like"),
        ("homepage", "https://a b", "--homepage: expected a URL like"),
        ("license", " ", "--license: expected an SPDX identifier like CC-BY-4.0"),
        ("license", "ask legal", "LicenseRef-NAME for one of your own, or a URL"),
        ("contact", "", "--contact: expected text"),
        ("citation", "\udcff", "--citation: expected UTF-8"),
    ],
)
def test_texts_that_nobody_could_read_are_refused(
    tmp_path: Path, option: str, text: str, said: str
) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", f"--{option}", text)
    assert ran.status == 2
    assert said in ran.err


@pytest.mark.parametrize(
    "text",
    [
        *("MIT", "LicenseRef-Mine", "GPL-2.0+ WITH Bison-exception-2.2"),
        *("(MIT OR Apache-2.0) AND CC0-1.0", "https://example.org/terms"),
    ],
)
def test_licenses_that_others_know(tmp_path: Path, text: str) -> None:
    out = tmp_path / "out"
    convert("csv", IRIS, out, "--license", text, "--card")
    assert manifest_of(out)["about"] == {"license": text}
    url = "https://spdx.org/licenses/MIT" if text == "MIT" else text
    assert card_of(out)["license"] == url


def test_rejects_and_index_files_stay(tmp_path: Path) -> None:
    out, rows = tmp_path / "out", tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2,y\n3\n4,z\n")
    job: list[Argument] = [rows, out, "--max-rejects", 1, "--index"]
    convert("csv", *job)
    before = {name: stand(out)[name] for name in stand(out) if "rejects" in name}
    assert before
    convert("csv", *job, *OPTIONS, "--card")
    assert before.items() <= stand(out).items()
    require_sums(out)
    assert "expected 2 columns, found 1" in recordmill("rejects", out).out
    assert recordmill("clean", out, "--dry-run").out == ""


@pytest.mark.usefixtures("cache")
def test_a_dataset_in_a_store_gets_another_description(tmp_path: Path) -> None:
    MemoryFileSystem.store.clear()
    out = "memory://bucket/iris"
    convert("csv", IRIS, out, "--license", "MIT")
    convert("csv", IRIS, out, *OPTIONS, "--card")
    assert recordmill("verify", out).status == 0
    MemoryFileSystem().get("/bucket/iris/", str(tmp_path / "iris/"), recursive=True)
    require_sums(tmp_path / "iris")
    assert manifest_of(tmp_path / "iris")["about"] == TEXTS
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("stop", range(1, 12))
def test_stopped_at_any_write_the_dataset_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """It has the old description or the new one; the same command ends with the new."""
    out = tmp_path / "iris"
    convert("csv", IRIS, out, "--license", "MIT", "--card")
    writes = 0

    def counted(write: Any) -> Any:
        def stopping(self: LocalStore, *arguments: Any, **more: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == stop:
                raise OutputError("the disk fails")
            return write(self, *arguments, **more)

        return stopping

    with monkeypatch.context() as patch:
        for name in ("put_bytes", "swap"):
            patch.setattr(LocalStore, name, counted(getattr(LocalStore, name)))
        recordmill("convert", "csv", IRIS, out, *OPTIONS, "--card")
    assert writes >= stop
    assert manifest_of(out)["about"] in (TEXTS, {"license": "MIT"})
    assert len(manifest_of(out)["splits"]["train"]["shards"]) == 1
    convert("csv", IRIS, out, *OPTIONS, "--card")
    assert manifest_of(out)["about"] == TEXTS
    require_sums(out)
    assert not (out / ".recordmill").exists()
