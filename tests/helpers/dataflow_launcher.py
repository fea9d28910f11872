"""Imports deploy/dataflow/main.py, which launchers call as a file."""

from __future__ import annotations

import runpy
from pathlib import Path

MAIN = Path(__file__).parents[2] / "deploy" / "dataflow" / "main.py"

_made = runpy.run_path(str(MAIN), run_name="launcher")
NOT_OFFERED, command_line = _made["NOT_OFFERED"], _made["command_line"]
parameters_of = _made["parameters_of"]
