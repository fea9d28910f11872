"""Builds a release from a commit: source, wheels, SBOM, provenance and checksums.

    .tools/release/bin/python deploy/release/build.py HEAD dist --environment .venv

The same commit and tools give the same bytes. README.md beside this file says what each
file is; statements.py makes those that describe the others.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from statements import Commit, write_checksums, write_provenance, write_sbom

GLIBC = "2.17"  # the newest that the extension may need; pyarrow's wheels need more
# The instructions of CRC are used on x86-64 where the processor has them, on ARM always:
# only the first processors of ARMv8, of 2013, lack them.
PROCESSORS = {"x86_64": "baseline+crc32", "aarch64": "generic+crc"}
BUILD = (
    "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
)


def main() -> None:
    """Builds what the command line names, in a folder that is replaced."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="what is built, such as HEAD or v0.1.0")
    parser.add_argument("dist", type=Path, help="the folder that gets it")
    parser.add_argument(
        "--environment", type=Path, required=True, help="has all extras, for licences"
    )
    given = parser.parse_args()
    shutil.rmtree(given.dist, ignore_errors=True)
    given.dist.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        commit = export(given.commit, work / "checkout")
        sdist = build_sdist(work, commit, given.dist)
        for processor in PROCESSORS:
            project = unpack(sdist, work / processor)
            repair(build_linux_wheel(project, commit, processor), commit, given.dist)
        # Of the extension nothing is built, and the wheel is one for all systems.
        plain = unpack(sdist, work / "any")
        build("wheel", plain, given.dist, commit, {"RECORDMILL_COMPILED": "no"})
        write_sbom(work / "checkout", given.environment, given.dist)
        write_provenance(commit, work / "checkout", given.dist)
    write_checksums(given.dist)
    for path in sorted(given.dist.iterdir()):
        print(f"{path.stat().st_size:>10,} bytes  {path}")


def export(name: str, folder: Path) -> Commit:
    """Writes the files of a commit to a folder: nothing else can get into a release."""

    def git(*words: str) -> bytes:
        return subprocess.run(
            ["git", *words], check=True, stdout=subprocess.PIPE
        ).stdout

    identifier, seconds = git("log", "-1", "--format=%H %ct", name).decode().split()
    with tarfile.open(fileobj=io.BytesIO(git("archive", identifier))) as archive:
        archive.extractall(folder, filter="data")
    return Commit(identifier, int(seconds))


def build_sdist(work: Path, commit: Commit, dist: Path) -> Path:
    """Builds the source distribution; of its times and owners only the commit's stay."""
    build("sdist", work / "checkout", work / "sdist", commit, {})
    (made,) = (work / "sdist").iterdir()
    data = io.BytesIO()
    with tarfile.open(made) as old, tarfile.open(fileobj=data, mode="w") as new:
        for member in sorted(old, key=lambda member: member.name):
            same = tarfile.TarInfo(member.name)
            same.type, same.size, same.mtime = member.type, member.size, commit.seconds
            same.mode = 0o755 if member.isdir() else 0o644
            new.addfile(same, old.extractfile(member))
    path = dist / made.name
    path.write_bytes(gzip.compress(data.getvalue(), mtime=commit.seconds))
    return path


def unpack(sdist: Path, folder: Path) -> Path:
    """Returns the folder of the project, unpacked: wheels prove that nothing is missing."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    return project


def build(
    kind: str, project: Path, output: Path, commit: Commit, variables: Mapping[str, str]
) -> None:
    """Builds an sdist or a wheel by setuptools, as pip would."""
    output.mkdir(exist_ok=True)
    environment = {"SOURCE_DATE_EPOCH": str(commit.seconds), "PYTHONHASHSEED": "0"}
    subprocess.run(
        [sys.executable, "-c", BUILD.format(kind), str(output.resolve())],
        cwd=project,
        env=os.environ | environment | variables,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def build_linux_wheel(project: Path, commit: Commit, processor: str) -> Path:
    """Builds a wheel with the native extension, by zig, beside the project's folder.

    The wheel is refused if the extension is missing: for users it is optional.
    """
    target = f"-target {processor}-linux-gnu.{GLIBC} -mcpu={PROCESSORS[processor]}"
    compiler = f"{sys.executable} -m ziglang cc {target}"
    variables = {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared -s",
        "CFLAGS": "-g0",  # it would name folders of this machine
        "_PYTHON_HOST_PLATFORM": f"linux-{processor}",  # for the wheel's name
        "ZIG_LOCAL_CACHE_DIR": str(project.parent / "zig"),
    }
    build("wheel", project, project.parent / "wheel", commit, variables)
    (wheel,) = (project.parent / "wheel").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    extensions = [name for name in names if name.endswith(".so")]
    if extensions != ["recordmill/transforms/native/_loops.abi3.so"]:
        raise SystemExit(f"{wheel.name}: native extension not built ({extensions})")
    return wheel


def repair(wheel: Path, commit: Commit, dist: Path) -> None:
    """Checks by auditwheel what the extension needs of a system, and names the wheel so."""
    scripts = Path(sys.executable).parent
    subprocess.run(
        [scripts / "auditwheel", "repair", "--wheel-dir", dist, wheel],
        env=os.environ
        | {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "SOURCE_DATE_EPOCH": str(commit.seconds),
        },
        check=True,
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
