"""The shell completes commands, options and their values."""

from __future__ import annotations

import os
import subprocess

import pytest
from job_tools import COMMAND, recordmill

# What bash does on Tab: the registered function is called with the words so far.
TAB = """
eval "$(recordmill completion bash)"
COMP_WORDS=({words}) COMP_CWORD={place}
$(complete -p recordmill | sed 's/.*-F \\([^ ]*\\).*/\\1/') recordmill
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("recordmill conv", ["convert"]),
        ("recordmill convert im", ["images"]),
        ("recordmill convert csv --compr", ["--compression"]),
        ("recordmill convert csv --compression gz", ["gzip"]),
        ("recordmill completion f", ["fish"]),
    ],
)
def test_bash(words: str, completed: list[str]) -> None:
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    script = TAB.format(words=words, place=len(words.split()) - 1)
    ran = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == completed, ran.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    ran = recordmill("completion", shell)
    assert ran.status == 0
    assert f"_RECORDMILL_COMPLETE={shell}_complete" in ran.out
