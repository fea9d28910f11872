"""Files that cells name, by the command: in a store with options, and never hidden ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from job_tools import convert, examples_of, recordmill
from store_servers import display_path

SCHEMA = "features:\n  image: {column: path, bytes_from: path}\n"


def images(folder: Path) -> list[bytes]:
    return [
        example.features.feature["image"].bytes_list.value[0]
        for example in examples_of(folder)
    ]


def test_in_a_store_that_options_lead_to(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable tells the address of this server, as with MinIO."""
    place = display_path("s3", tmp_path, monkeypatch, server)
    place.store.put_bytes(b"path\nimages/a.jpg\nimages/b.jpg\n", "rows.csv")
    for name in ("a", "b"):
        place.store.put_bytes(name.encode() * 9, f"images/{name}.jpg")
    schema = tmp_path / "schema.yaml"
    schema.write_text(SCHEMA)
    address = place.options.to_dict()["endpoint_url"]
    option = ("--storage-option", f"input:endpoint_url={address}")
    output = tmp_path / "out"
    table = f"{place.root}/rows.csv"
    convert("csv", table, output, "--schema", schema, "--no-shuffle", *option)
    assert images(output) == [b"a" * 9, b"b" * 9]


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """A table in one folder, the images that it names in another."""
    images = tmp_path / "images"
    (images / "a").mkdir(parents=True)
    (images / "a" / "1.jpg").write_bytes(b"one")
    (images / "2.jpg").write_bytes(b"two")
    (tmp_path / "secret").write_bytes(b"secret")
    (images / "link.jpg").symlink_to(tmp_path / "secret")
    (images / "way out").symlink_to(tmp_path)
    (images / "Thumbs.db").write_bytes(b"junk")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "tables").mkdir()
    return tmp_path


def table_of(folder: Path, *paths: str) -> Path:
    table = folder / "tables" / "rows.csv"
    table.write_text("\n".join(["path", *paths]) + "\n")
    return table


def test_below_a_files_root(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anywhere below it, as the option names it from here; and --plan reads them, too."""
    table = table_of(apart, "a/1.jpg", "a/../2.jpg")
    monkeypatch.chdir(apart)
    job = ["convert", "csv", table, "out", "--schema", "schema.yaml", "--no-shuffle"]
    job += ["--files-root", "images/"]
    plan = recordmill(*job, "--plan")
    assert plan.status == 0, plan.err
    assert recordmill(*job).status == 0
    assert images(apart / "out") == [b"one", b"two"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret", "'../secret' is outside the files root"),
        ("a/../../secret", "is outside the files root"),
        ("/etc/passwd", "is absolute, expected a path relative to the files root"),
        (
            "file:///etc/passwd",
            "is absolute, expected a path relative to the files root",
        ),
        ("link.jpg", "'link.jpg' is a link out of the files root"),
        ("way out/secret", "is a link out of the files root"),
        ("Thumbs.db", "nor what operating systems leave in folders"),
        ("rows.csv", "'rows.csv': no such file"),
    ],
)
def test_nothing_outside_a_files_root(apart: Path, path: str, reason: str) -> None:
    table = table_of(apart, "2.jpg", path)
    job = ["csv", table, apart / "out", "--schema", apart / "schema.yaml"]
    job += ["--files-root", apart / "images", "--max-rejects", 1]
    convert(*job)
    assert images(apart / "out") == [b"two"]
    told = recordmill("rejects", apart / "out")
    assert reason in told.out


def test_a_files_root_fixes_bytes(apart: Path) -> None:
    """Another root, or a changed file below it, is another dataset; files are appended."""
    table = table_of(apart, "2.jpg")
    job = [
        "csv",
        table,
        apart / "out",
        "--schema",
        apart / "schema.yaml",
        "--files-root",
    ]
    convert(*job, apart / "images")
    again = recordmill("convert", *job, apart / "images")
    assert "already there" in again.err + again.out
    assert recordmill("convert", *job, apart / "images" / "a").status == 73
    more = apart / "tables" / "more.csv"
    more.write_text("path\na/1.jpg\n")
    job = ["csv", table.parent, *job[2:], apart / "images", "--append"]
    convert(*job)
    assert sorted(images(apart / "out")) == [b"one", b"two"]
    (apart / "images" / "2.jpg").write_bytes(b"2")
    ran = recordmill("convert", *job)
    assert "files_root:/2.jpg" in ran.err


@pytest.mark.parametrize(
    ("root", "schema", "message"),
    [
        ("images", "", "--files-root needs --schema"),
        ("images", "features: {path: {dtype: string}}", "has bytes_from: path"),
        ("none", SCHEMA, "--files-root: "),
        ("secret", SCHEMA, "is not a folder"),
        ("imag*", SCHEMA, "is not a folder"),
    ],
)
def test_a_files_root_that_is_none(
    apart: Path, root: str, schema: str, message: str
) -> None:
    table = table_of(apart, "2.jpg")
    job = ["convert", "csv", table, apart / "out", "--files-root", apart / root]
    if schema:
        (apart / "schema.yaml").write_text(schema)
        job += ["--schema", apart / "schema.yaml"]
    ran = recordmill(*job)
    assert ran.status != 0
    assert message in ran.err


def test_a_files_root_in_a_store(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is on this machine, its images in a store that options lead to."""
    place = display_path("s3", tmp_path, monkeypatch, server)
    place.store.put_bytes(b"aa", "images/x/a.jpg")
    place.store.put_bytes(b"secret", "secret.jpg")
    (tmp_path / "rows.csv").write_text("path\nx/a.jpg\n../secret.jpg\n")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    address = place.options.to_dict()["endpoint_url"]
    output = tmp_path / "out"
    convert(
        *("csv", tmp_path / "rows.csv", output, "--schema", tmp_path / "schema.yaml"),
        *("--files-root", f"{place.root}/images/", "--max-rejects", 1),
        *("--storage-option", f"input:endpoint_url={address}"),
    )
    assert images(output) == [b"aa"]
    assert "outside the files root" in recordmill("rejects", output).out


def test_hidden_files_are_no_input(tmp_path: Path) -> None:
    """A cell must not bring .aws/credentials into a record."""
    data = tmp_path / "data"
    (data / ".aws").mkdir(parents=True)
    (data / ".aws" / "credentials").write_text("secret")
    (data / "a.jpg").write_bytes(b"image")
    (data / "rows.csv").write_text("path\na.jpg\n.aws/credentials\n")
    schema = tmp_path / "schema.yaml"
    schema.write_text(SCHEMA)
    job = ("csv", data / "rows.csv", tmp_path / "out", "--schema", schema)
    ran = recordmill("convert", *job)
    assert ran.status != 0
    assert "'.aws/credentials' is hidden" in ran.err
    convert(*job, "--max-rejects", 1)
    assert images(tmp_path / "out") == [b"image"]
