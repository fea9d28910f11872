"""The shell completes commands, options, their values, and files: in a real bash."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_tools import COMMAND, HANG_SECONDS, recordmill

from recordmill.beam_jobs.cli.main import cli

# What bash does on Tab: the registered function is called with the words so far.
TAB = """
eval "$(recordmill completion bash)"
function="$(complete -p recordmill | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
while read -ra COMP_WORDS; do
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  [ "${COMP_WORDS[COMP_CWORD]}" = - ] && COMP_WORDS[COMP_CWORD]=
  COMPREPLY=()
  $function recordmill
  echo "${COMPREPLY[@]}"
done
"""
COMPLETED = {
    "recordmill conv": ["convert"],
    "recordmill -": list(cli.commands),
    "recordmill convert im": ["images"],
    "recordmill schema -": ["infer", "check"],
    "recordmill convert csv --compr": ["--compression"],
    "recordmill convert csv --compression gz": ["gzip"],
    "recordmill inspect --ima": ["--image"],
    "recordmill completion f": ["fish"],
}


def environment() -> dict[str, str]:
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb"}


def test_bash() -> None:
    """A lone "-" stands for a word that has not begun."""
    ran = subprocess.run(
        ["bash", "-c", TAB],
        input="\n".join([*COMPLETED, ""]),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split() for line in ran.stdout.splitlines()]
    assert dict(zip(COMPLETED, found, strict=True)) == COMPLETED, ran.stderr


@contextmanager
def interactive_bash(folder: Path) -> Iterator[int]:
    """A bash at a terminal; gives our end of it."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(),
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def type_until(ours: int, typed: str, wanted: str) -> None:
    """Types, and reads what the terminal shows until it has what is wanted."""
    os.write(ours, typed.encode())
    shown = ""
    deadline = time.monotonic() + HANG_SECONDS
    while wanted not in shown:
        assert time.monotonic() < deadline, f"{typed!r}: {shown}"
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 4096).decode(errors="replace")


def test_files_are_completed_where_files_are_wanted(tmp_path: Path) -> None:
    """By Tab at a prompt, as only there bash completes files."""
    (tmp_path / "table_of_rows.csv").touch()
    (tmp_path / "folder_of_rows").mkdir()
    with interactive_bash(tmp_path) as ours:
        # The echo of the line itself has quotes between the words.
        type_until(
            ours, 'eval "$(recordmill completion bash)"; echo re""ady\n', "ready"
        )
        for typed, wanted in {
            "recordmill convert csv ta\t": "table_of_rows.csv",
            "recordmill convert csv x --schema ta\t": "table_of_rows.csv",
            "recordmill run ta\t": "table_of_rows.csv",
            "recordmill inspect fo\t": "folder_of_rows",
        }.items():
            type_until(ours, typed, wanted)
            os.write(ours, b"\x15")  # clears the line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    ran = recordmill("completion", shell)
    assert ran.status == 0
    assert f"_RECORDMILL_COMPLETE={shell}_complete" in ran.out
