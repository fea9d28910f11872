"""Which files are inputs: excluded, piped, named in cells, or inside the output."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from job_tools import (
    IRIS,
    Argument,
    Ran,
    codes_of,
    contents,
    convert,
    examples_of,
    manifest_of,
    recordmill,
)
from pixel_zoo import IMAGES
from store_servers import display_path

pytestmark = pytest.mark.usefixtures("without_beam")

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
    assert "Warning: skipped: " in told
    assert (
        f"in the output folder {data / 'out'}, because it is inside the input" in told
    )


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
def test_in_a_store(more: list[str]) -> None:
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
    assert codes_of(plan) == ["output-in-input"]
    convert("csv", *job)
    assert status("csv", *job) == "unchanged"


def test_what_is_named_in_the_output_is_refused(tmp_path: Path) -> None:
    data = fill(tmp_path / "data", "csv")
    convert("csv", data, data / "out")
    before = contents(data)
    refused = {
        "is an input, but is inside the output folder": [
            data / "a.csv",
            data / "out" / "manifest.json",
        ],
        "is both the input and the output folder": [data / "out"],
        "no files except": [f"{data}/o*"],
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
    assert "2 other links skipped" in ran.err
    assert status("csv", data, tmp_path / "out") == "unchanged"


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


def test_whole_paths_below_a_files_root(apart: Path) -> None:
    """As tables have them that name files by where they are: a folder, or a bucket."""
    table = table_of(apart, "a/1.jpg", f"{apart}/images/2.jpg")
    job = ["csv", table, apart / "out", "--schema", apart / "schema.yaml"]
    convert(*job, "--files-root", apart / "images", "--no-shuffle")
    assert images(apart / "out") == [b"one", b"two"]


OUTSIDE = {  # a cell, and why it is rejected
    "../secret": "'../secret' is outside the files root",
    "a/../../secret": "is outside the files root",
    "/etc/passwd": "'/etc/passwd' is absolute, expected a path relative to the files",
    "file:///etc/passwd": "'file:///etc/passwd' is absolute, expected a path relative",
    "link.jpg": "'link.jpg' is a link that leads out of the files root",
    "way out/secret": "'way out/secret' is a link that leads out of the files root",
    "Thumbs.db": "recordmill skips hidden files and files of operating",
    "rows.csv": "'rows.csv': no such file",
}


def test_several_files_roots(apart: Path) -> None:
    """Paths are below the first one; cells name files of the others by where they are."""
    other = apart / "other"
    other.mkdir()
    (other / "2.jpg").write_bytes(b"another two")
    outside = f"{apart}/secret"
    table = table_of(
        apart, "2.jpg", f"{other}/2.jpg", f"{apart}/images/a/1.jpg", outside
    )
    job = ["csv", table, apart / "out", "--schema", apart / "schema.yaml"]
    job += ["--files-root", f"{apart}/images,{other}/", "--no-shuffle"]
    convert(*job, "--max-rejects", 1)
    assert images(apart / "out") == [b"two", b"another two", b"one"]
    told = recordmill("rejects", apart / "out").out
    assert f"or a path below {other}" in told
    (other / "2.jpg").write_bytes(b"changed")
    assert "files_root:2/2.jpg" in recordmill("convert", *job).err


def test_nothing_outside_a_files_root(apart: Path) -> None:
    table = table_of(apart, "2.jpg", *OUTSIDE)
    job = ["csv", table, apart / "out", "--schema", apart / "schema.yaml"]
    job += ["--files-root", apart / "images", "--max-rejects", len(OUTSIDE)]
    convert(*job)
    assert images(apart / "out") == [b"two"]
    told = json.loads(recordmill("rejects", apart / "out", "--json").out)["rows"]
    for row, reason in zip(told, OUTSIDE.values(), strict=True):
        assert reason in row["reason"]


def test_a_files_root_fixes_bytes(apart: Path) -> None:
    """Another root, or a changed file below it, is another dataset; files are appended."""
    table = table_of(apart, "2.jpg")
    schema = ("--schema", apart / "schema.yaml")
    job = ["csv", table, apart / "out", *schema, "--files-root"]
    convert(*job, apart / "images")
    again = recordmill("convert", *job, apart / "images")
    assert "already exists" in again.err + again.out
    assert recordmill("convert", *job, apart / "images" / "a").status == 73
    more = apart / "tables" / "more.csv"
    more.write_text("path\na/1.jpg\n")
    job = ["csv", table.parent, *job[2:], apart / "images", "--append"]
    convert(*job)
    assert sorted(images(apart / "out")) == [b"one", b"two"]
    (apart / "images" / "2.jpg").write_bytes(b"2")
    ran = recordmill("convert", *job)
    assert "files_root:/2.jpg" in ran.err


def test_a_files_root_that_is_none(apart: Path) -> None:
    table = table_of(apart, "2.jpg")
    strings = "features: {path: {dtype: string}}"
    for root, schema, message in (
        ("images", "", "--files-root needs --schema"),
        ("images", strings, "has bytes_from: path"),
        ("none", SCHEMA, "--files-root: "),
        ("secret", SCHEMA, "expected a folder"),
        ("imag*", SCHEMA, "expected a folder"),
    ):
        job = ["convert", "csv", table, apart / "out", "--files-root", apart / root]
        (apart / "schema.yaml").write_text(schema)
        ran = recordmill(*job, *(["--schema", apart / "schema.yaml"] * bool(schema)))
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


ROWS = b"id,name\n" + b"".join(b"%d,n%d\n" % (n, n) for n in range(300))


class Pipe(io.BytesIO):
    """What stands before the command in a pipe; gives a few bytes at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.buffer = self

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 100, 100))


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: str | Path) -> Ran:
    monkeypatch.setattr("sys.stdin", Pipe(data))
    return recordmill(*arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pipe_is_converted_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes are the same dataset, others are another one; no file is left."""
    (folder / "in.csv").write_bytes(ROWS)
    convert("csv", "in.csv", "file")
    command = ("convert", "csv", "-", "out")
    assert piped(monkeypatch, ROWS, *command, "--plan").status == 0
    assert not (folder / "out").exists()
    assert piped(monkeypatch, ROWS, *command).status == 0
    assert sorted(map(str, examples_of(folder / "out"))) == sorted(
        map(str, examples_of(folder / "file"))
    )
    assert "nothing to do" in piped(monkeypatch, ROWS, *command).err
    other = piped(monkeypatch, ROWS + b"8,x\n", *command)
    assert (other.status, "1 new (stdin-" in other.err) == (73, True)
    packed = gzip.compress(ROWS)
    assert piped(monkeypatch, packed, "convert", "csv", "-", "packed").status == 0
    lines = b'{"a": 1}\n' * 3
    assert piped(monkeypatch, lines, "convert", "jsonl", "-", "lines").status == 0
    assert len([*examples_of(folder / "packed")]) == 300
    names = {path.name for path in folder.iterdir()}
    assert names == {"in.csv", "file", "out", "packed", "lines"}


def test_what_a_killed_process_left_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = folder / ".recordmill-stdin-1"
    left.mkdir()
    (left / "lock").touch()
    (left / "stdin").write_bytes(ROWS)
    assert piped(monkeypatch, b"", "convert", "csv", "-", "out").status == 65
    assert not left.exists()


def test_what_cannot_be_read_twice_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for typed, problem in {
        "- in.csv out": "must be the only input",
        "- out --append": "write each to a file in one folder",
        "- out -- --runner=FlinkRunner": "write it to a file that they can",
    }.items():
        ran = piped(monkeypatch, ROWS, "convert", "csv", *typed.split())
        assert ran.status == 2, ran.err
        assert problem in ran.err
        assert not [*folder.iterdir()]


def test_an_empty_pipe_is_an_error_and_a_file_may_have_this_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = piped(monkeypatch, b"", "convert", "csv", "-", "out")
    assert (ran.status, "standard input is empty" in ran.err) == (65, True)
    ran = recordmill("schema", "infer", "csv", "-")
    assert "a file of this name is ./-" in ran.err
    (folder / "-").write_bytes(ROWS)
    convert("csv", "./-", "out")


def test_what_is_left_is_converted(tmp_path: Path) -> None:
    """Also where the others would be errors: other columns, and a link to nothing."""
    folder, out, job = tmp_path / "in", tmp_path / "out", tmp_path / "job.yaml"
    for name, text in {
        "parts/a.csv": "n,x\n1,2\n",
        "parts/b.csv": "n,x\n3,4\n",
        "old/c.csv": "other\n7\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "parts" / "d.tmp").symlink_to("nowhere")

    def run(exclude: str, more: str = "") -> Ran:
        job.write_text(
            f"source: csv\ninputs: {folder}\noutput: {out}\nexclude: {exclude}\n{more}"
        )
        return recordmill("run", job)

    both = ("--exclude", "old", "--exclude", "*.tmp")
    ran = convert("csv", folder, out, *both)
    assert "left out: 2 files, by exclude: old, *.tmp" in ran.err
    assert "already exists" in run("[old, d.tmp]").err
    ran = run("'*.*'")
    assert ran.status == 65
    assert "exclude *.*: leaves out all input files (4 files, such as old" in ran.err
    ran = recordmill("schema", "infer", "csv", folder, *both)
    assert "2 features, 2 rows" in ran.err
    (folder / "parts" / "e.csv").write_text("n,x\n5,6\n")
    assert run("[old, d.tmp]", "append: true\n").status == 0
    assert manifest_of(out)["splits"]["train"]["records"] == 3
    ran = run("[old, d.tmp, a.csv]", "append: true\n")
    assert "1 left out by exclude (parts/a.csv)" in ran.err  # its records are there
    assert "name fewer files in exclude, so that they are inputs again" in ran.err
    assert run("[old, d.tmp]", "append: true\n").status == 0
    assert run("[old, d.tmp, a.csv]", "overwrite: true\n").status == 0
    assert manifest_of(out)["splits"]["train"]["records"] == 2
    assert run("[old, d.tmp]", "overwrite: true\n").status == 0
    shutil.rmtree(folder / "old")
    (folder / "parts" / "d.tmp").unlink()
    assert "already exists" in convert("csv", folder, out, "--append").err
