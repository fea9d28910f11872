"""A release: reproducible, described, and its wheels run without a compiler.

`make release` tests what it built, by RECORDMILL_DIST; otherwise this commit is built.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from reader_tools import ROOT
from store_servers import tool

LIMIT_SECONDS = 600
LINUX, ARM, ANY = "*manylinux*_x86_64.whl", "*manylinux*_aarch64.whl", "*-none-any.whl"
VALIDATE = (
    "import sys; from cyclonedx.schema import SchemaVersion;"
    "from cyclonedx.validation.json import JsonStrictValidator;"
    "sys.exit(JsonStrictValidator(SchemaVersion.V1_6)"
    ".validate_str(open(sys.argv[1]).read()))"
)


def build(dist: Path, work: Path) -> Path:
    """Builds this commit; nothing that was compiled before is used again."""
    work.mkdir()
    run(
        *(tool("release/bin/python"), ROOT / "deploy/release/build.py", "HEAD", dist),
        *("--environment", ROOT / ".venv"),
        cwd=ROOT,
        env=os.environ
        | {"TMPDIR": str(work), "ZIG_GLOBAL_CACHE_DIR": str(work / "zig")},
    )
    return dist


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes one for the tests where the checkout came without, as from an archive."""
    known = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False
    )
    with pytest.MonkeyPatch.context() as patch:
        if known.returncode:
            folder = tmp_path_factory.mktemp("repository") / ".git"
            patch.setenv("GIT_DIR", str(folder))
            patch.setenv("GIT_WORK_TREE", str(ROOT))
            run("git", "init", "--quiet", cwd=ROOT)
            run("git", "add", "--all", cwd=ROOT)
            names = "-c", "user.name=a", "-c", "user.email=a@example.org"
            run("git", *names, "commit", "--quiet", "--message", "All", cwd=ROOT)
        yield


@pytest.fixture(scope="module")
def dist(repository: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("RECORDMILL_DIST"):
        return Path(given)
    folder = tmp_path_factory.mktemp("release")
    return build(folder / "dist", folder / "work")


def one(dist: Path, pattern: str) -> Path:
    (path,) = dist.glob(pattern)
    return path


def test_the_same_commit_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again", tmp_path / "work")
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in each}
        for each in (dist.iterdir(), again.iterdir())
    )
    assert first == second
    assert len(first) == 7


def test_wheels_hold_the_extension_of_their_processor(dist: Path) -> None:
    machines = {LINUX: 62, ARM: 183}  # EM_X86_64 and EM_AARCH64, at 18 of an ELF file
    for pattern, machine in machines.items():
        with zipfile.ZipFile(one(dist, pattern)) as wheel:
            library = wheel.read("recordmill/transforms/native/_loops.abi3.so")
        assert int.from_bytes(library[18:20], "little") == machine
    names = zipfile.ZipFile(one(dist, ANY)).namelist()
    assert not [name for name in names if name.endswith((".so", ".c", ".h"))]
    for file in (
        "py.typed",
        "beam_jobs/report/page.html",
        "schemas/proto/example.proto",
    ):
        assert f"recordmill/{file}" in names


# The last one is what other systems get.
@pytest.mark.parametrize(
    ("python", "pattern", "extension"),
    [
        ("3.11", LINUX, "yes (CRC-32C by instruction)"),
        ("3.12", LINUX, "yes (CRC-32C by instruction)"),
        ("3.13", LINUX, "yes (CRC-32C by instruction)"),
        ("3.13", ANY, "no, it was not built"),
    ],
    ids=["3.11", "3.12", "3.13", "3.13 without it"],
)
def test_a_wheel_runs_the_demo_without_a_compiler(
    dist: Path, tmp_path: Path, python: str, pattern: str, extension: str
) -> None:
    scripts = Path(tool(f"clean-{python}/bin/python")).parent
    tools = tmp_path / "bin"  # all that a path leads to: no compiler is among them
    tools.mkdir()
    for name in ("sh", "dirname", "rm"):
        (tools / name).symlink_to(f"/bin/{name}")
    bare = {"PATH": str(tools), "HOME": str(tmp_path)}
    run(
        *(scripts / "python", "-m", "pip", "install", "--no-index", "--no-deps"),
        *("--no-compile", "--force-reinstall", one(dist, pattern)),
        cwd=tmp_path,
        env=bare,
    )
    told = run(scripts / "recordmill", "--version", cwd=tmp_path, env=bare)
    assert f"native extension: {extension}" in told
    run("sh", ROOT / "tests/demo.sh", scripts / "recordmill", cwd=tmp_path, env=bare)
    (tmp_path / "checkout").mkdir()
    output = tmp_path / "checkout/iris"
    iris = ROOT / "tests/samples/iris/iris.csv"
    run(
        *(ROOT / ".venv/bin/recordmill", "convert", "csv", iris, output),
        *("--shards", "2"),
        cwd=tmp_path,
    )
    shards = sorted(output.glob("*.tfrecord-*"))
    assert len(shards) == 2
    for shard in shards:
        same = tmp_path / "demo-output/iris" / shard.name
        assert same.read_bytes() == shard.read_bytes()


def test_the_wheel_of_arm_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """Debian's Python for ARM64 runs it, by qemu, with the packages of the lock."""
    system = Path(tool("arm64/.ready")).parent
    with zipfile.ZipFile(one(dist, ARM)) as wheel:
        wheel.extractall(tmp_path / "wheel")
    paths = f"{tmp_path / 'wheel'}:{system / 'packages'}"
    samples = ROOT / "tests/samples"
    jobs = [
        ["convert", source, str(samples / name), source, "--name=a", "--shards=2"]
        for source, name in [("csv", "iris/iris.csv"), ("images", "images")]
    ]
    code = (  # one process, as imports take most of the time
        f"from recordmill.beam_jobs.cli.main import run;"
        f"print([run(words) for words in {[['--version'], *jobs]}])"
    )
    told = run(
        *("qemu-aarch64-static", "-L", system / "root"),
        *(system / "root/usr/bin/python3", "-c", code),
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "HOME": str(tmp_path), "PYTHONPATH": paths},
    )
    assert "native extension: yes (CRC-32C by instruction)" in told
    assert "[0, 0, 0]" in told
    (tmp_path / "here").mkdir()
    for job in jobs:
        run(ROOT / ".venv/bin/recordmill", *job, cwd=tmp_path / "here")
        shards = sorted((tmp_path / "here" / job[1]).glob("*.tfrecord-*"))
        assert len(shards) >= 2
        for shard in shards:
            same = tmp_path / job[1] / shard.name
            assert same.read_bytes() == shard.read_bytes()


def test_the_source_has_what_the_extension_is_built_of(dist: Path) -> None:
    names = run("tar", "-tzf", one(dist, "*.tar.gz"), cwd=dist).split()
    for path in (ROOT / "transforms/native").glob("*.[ch]"):
        assert f"recordmill-0.1.0/src/recordmill/transforms/native/{path.name}" in names


def test_the_sbom_is_valid_and_names_what_linux_installs(dist: Path) -> None:
    sbom = one(dist, "*.cdx.json")
    run(tool("release/bin/python"), "-c", VALIDATE, sbom, cwd=dist)
    parts = {part["name"]: part for part in json.loads(sbom.read_text())["components"]}
    required = {name for name, part in parts.items() if part["scope"] == "required"}
    told = run(
        *(tool("clean-3.13/bin/python"), "-m", "pip", "list", "--format=json"), cwd=dist
    )
    installed = {
        re.sub(r"[-_.]+", "-", each["name"]).lower() for each in json.loads(told)
    }
    assert required == installed - {"pip", "setuptools", "recordmill"}
    assert parts["s3fs"]["scope"] == "optional"
    assert parts["click"]["licenses"] == [{"expression": "BSD-3-Clause"}]


def test_an_unknown_licence_ends_the_build(tmp_path: Path) -> None:
    """It is found in the metadata of a package, beside those of all others."""
    found = ROOT.glob(".venv/lib/python*/site-packages/*.dist-info/METADATA")
    site = tmp_path / "lib/python3/site-packages"
    for path in found:
        copy = site / path.parent.name / "METADATA"
        copy.parent.mkdir(parents=True)
        copy.write_bytes(path.read_bytes())
        if copy.parent.name.startswith("click-"):
            text = copy.read_text()
            copy.write_text(text.replace("BSD-3-Clause", "Proprietary", 1))
    code = (
        f"from pathlib import Path; from statements import write_sbom;"
        f"write_sbom(Path({str(ROOT)!r}), Path({str(tmp_path)!r}), Path())"
    )
    done = subprocess.run(
        [tool("release/bin/python"), "-c", code],
        cwd=ROOT / "deploy/release",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "{'click': 'Proprietary'}" in done.stderr


def test_sums_and_provenance_are_of_all_files(dist: Path) -> None:
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)
    statement = json.loads((dist / "provenance.json").read_text())
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    sums = [line.split() for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert {name: digest for digest, name in sums if name in named} == named
    left = {path.name for path in dist.iterdir()} - set(named)
    assert left == {"SHA256SUMS", "provenance.json"}
    built = statement["predicate"]["buildDefinition"]
    head = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    assert built["externalParameters"] == {"commit": head}
    assert {"gitCommit": head} in [
        one.get("digest") for one in built["resolvedDependencies"]
    ]


@pytest.mark.parametrize(("version", "status"), [("of the lock", 1), ("0.0.1", 0)])
def test_advisories_are_about_the_versions_of_the_sbom(
    dist: Path, tmp_path: Path, version: str, status: int
) -> None:
    sbom = one(dist, "*.cdx.json")
    parts = json.loads(sbom.read_text())["components"]
    (locked,) = [part["version"] for part in parts if part["name"] == "jinja2"]
    version = locked if status else version
    advisory = {
        "id": "PYSEC-2026-1",
        "summary": "an escape",
        "affected": [
            {"package": {"ecosystem": "PyPI", "name": "Jinja2"}, "versions": [version]}
        ],
    }
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-2026-1.json", json.dumps(advisory))
    done = subprocess.run(
        [
            *(tool("release/bin/python"), ROOT / "deploy/release/statements.py"),
            *(sbom, tmp_path / "all.zip"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert (f"jinja2 {locked}: PYSEC-2026-1: an escape" in done.stdout) == bool(status)
