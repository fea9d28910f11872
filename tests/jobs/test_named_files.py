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
    place.store.put_bytes(b"path\npictures/a.jpg\npictures/b.jpg\n", "rows.csv")
    for name in ("a", "b"):
        place.store.put_bytes(name.encode() * 9, f"pictures/{name}.jpg")
    schema = tmp_path / "schema.yaml"
    schema.write_text(SCHEMA)
    address = place.options.to_dict()["endpoint_url"]
    option = ("--storage-option", f"input:endpoint_url={address}")
    output = tmp_path / "out"
    table = f"{place.root}/rows.csv"
    convert("csv", table, output, "--schema", schema, "--no-shuffle", *option)
    assert images(output) == [b"a" * 9, b"b" * 9]


def test_hidden_files_are_no_input(tmp_path: Path) -> None:
    """A cell must not bring .aws/credentials into a record."""
    data = tmp_path / "data"
    (data / ".aws").mkdir(parents=True)
    (data / ".aws" / "credentials").write_text("secret")
    (data / "a.jpg").write_bytes(b"picture")
    (data / "rows.csv").write_text("path\na.jpg\n.aws/credentials\n")
    schema = tmp_path / "schema.yaml"
    schema.write_text(SCHEMA)
    job = ("csv", data / "rows.csv", tmp_path / "out", "--schema", schema)
    ran = recordmill("convert", *job)
    assert ran.status != 0
    assert "'.aws/credentials' is hidden" in ran.err
    convert(*job, "--max-rejects", 1)
    assert images(tmp_path / "out") == [b"picture"]
