"""Finds the functions of the product that a run of the command enters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("schemas", "transforms", "beam_jobs")


def entered_functions(arguments: list[str], folder: Path) -> list[str]:
    """Runs the command, in a process of its own, with a hook on each call.

    Args:
      arguments: of the command.
      folder: an empty one, for the list of functions.

    Returns:
      "file:function" in the order of their first call, in any thread.
    """
    found = folder / "functions.json"
    subprocess.run(
        [sys.executable, __file__, str(found), *arguments],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    entered: list[str] = json.loads(found.read_text())
    return entered


def _run(found: Path, arguments: list[str]) -> None:
    entered: dict[str, None] = {}
    files: dict[str, str | None] = {}

    def file_of(name: str) -> str | None:
        path = Path(os.path.realpath(name))
        if not path.is_relative_to(ROOT):
            return None
        relative = path.relative_to(ROOT)
        return relative.as_posix() if relative.parts[0] in LAYERS else None

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename not in files:
                files[code.co_filename] = file_of(code.co_filename)
            if file := files[code.co_filename]:
                entered[f"{file}:{code.co_qualname}"] = None

    def leave(status: int) -> None:
        sys.setprofile(None)
        found.write_text(json.dumps(list(entered)))
        exit_at_once(status)

    # The command ends its process without waiting for what Beam leaves behind.
    exit_at_once, os._exit = os._exit, leave  # type: ignore[assignment]
    threading.setprofile(note)
    sys.setprofile(note)

    from recordmill.beam_jobs.cli.main import main

    sys.argv = ["recordmill", *arguments]
    main(arguments)
    leave(0)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), sys.argv[2:])
