"""Options become a job in one way, whichever front end they come from."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from click.testing import CliRunner

from recordmill.beam_jobs.cli import job_commands
from recordmill.schemas.job_file import load_job
from recordmill.schemas.job_options import LoadedJob
from recordmill.transforms.sources.registry import BUILT_IN, load_format

FORMATS = {name: load_format(name).options for name in BUILT_IN}

SAME = [  # what a job file says, and what the command is given
    ("splits: {a: 0.7, b: 3/10}", ["--split", "a=0.7", "--split", "b=3/10"]),
    ("version: auto\nkeep: 2", ["--dataset-version", "auto", "--keep", "2"]),
    ("shuffle: false\nseed: 7", ["--no-shuffle", "--seed", "7"]),
    ("shard_size: 1MB\nsplit_by: x", ["--shard-size", "1MB", "--split-by", "x"]),
    ("readers: 3\ncompression: gzip", ["--readers", "3", "--compression", "gzip"]),
    ("index: true", ["--index"]),
    ("images: {feature_names: tutorial}", ["--feature-names", "tutorial"]),
    ("max_rejects: 1%\nappend: true", ["--max-rejects", "1%", "--append"]),
    ("storage: {input: {anon: true}, output: {anon: true}}", ["--storage-option", "anon=true"]),
    ("verify: full\nworkers: 2", ["--verify", "full", "--workers", "2"]),
    ("exchange: engine\nscratch: /x/s", ["--exchange", "engine", "--scratch", "/x/s"]),
    ("metrics_file: /x/m\nlog_format: json", ["--metrics-file", "/x/m", "--log-format", "json"]),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "arguments"), SAME)
def test_the_command_and_a_job_file_make_the_same_job(
    fields: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[LoadedJob] = []
    load = job_commands.load_typed_job

    def stop(values: dict[str, Any]) -> LoadedJob:
        made.append(load(values))
        raise SystemExit

    monkeypatch.setattr(job_commands, "load_typed_job", stop)
    command = job_commands.convert.get_command(None, "images")
    assert command
    CliRunner().invoke(command, [*arguments, "/x/in", "/x/out"])
    text = f"source: images\ninputs: /x/in\noutput: /x/out\n{fields}\n"
    file = load_job(text.encode(), "/j.yaml", {}, date(2026, 1, 1), bytes, FORMATS)
    assert made[0].job == file.job
    assert made[0].options == file.options
