"""Text for people is written in one module, which escapes it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
WRITER = "beam_jobs/report/terminal.py"
# Calls with a text that is constant, and so holds no name: the version, the completion
# script, the schema of job files. The last words of a process that
# hangs pass `escape_message`, and no lock.
CONSTANT = {
    ("beam_jobs/cli/main.py", "click.echo"): 2,
    ("beam_jobs/cli/job_commands.py", "click.echo"): 1,
    ("beam_jobs/cli/signals.py", "sys.__stderr__.write"): 1,
}
CALLS = {"print", "click.echo", "click.secho", "traceback.print_exc"}
CALLS |= {
    f"sys.{name}.write" for name in ("stdout", "stderr", "__stdout__", "__stderr__")
}


def test_only_one_module_writes_to_the_terminal() -> None:
    written = Counter[tuple[str, str]]()
    for folder in ("beam_jobs", "transforms", "schemas", "src"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and name != WRITER:
                    written[name, ast.unparse(node.func)] += 1
    calls = {place: number for place, number in written.items() if place[1] in CALLS}
    assert calls == CONSTANT
