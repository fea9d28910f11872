"""Shows what a verification found: a table for people, JSON for programs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, TextIO

from recordmill.beam_jobs.report.text_tables import (
    make_console,
    make_table,
    write_json,
)
from recordmill.schemas.text import count

if TYPE_CHECKING:
    from recordmill.transforms.dataset.verify import VerifyResult

_ADVICE = {
    "damage": "{output} is damaged. Convert again with --overwrite to make it anew. "
    "Where --dataset-version auto chose its version, remove its folder instead and "
    "convert again",
    "unfinished": "{output} is whole, but files beside its shards are not in place yet. If "
    "no run is at work there, run the same command again, or `recordmill clean {output}`: "
    "both put them in place",
    "stray": "{output} has files that are not its own. Delete those that the table names",
    "values": "{output} has records that do not fit its schema, and were written so. Mend "
    "the inputs or the schema, and convert again with --overwrite",
    "duplicates": "{output} is whole, but its splits are not apart. Look at a record with "
    "`recordmill inspect {output} --split NAME --index NUMBER`. Remove the copies from the "
    "inputs, and convert again with --overwrite",
}

_UNLIMITED = 1 << 16  # characters in a line


def show_verify(
    result: VerifyResult, *, as_json: bool = False, stream: TextIO | None = None
) -> None:
    """Shows what a verification found.

    Args:
      result: of recordmill.transforms.dataset.verify.verify_dataset.
      as_json: write one JSON object instead of lines and a table.
      stream: where to; standard output unless given.
    """
    from recordmill.schemas.text import human_bytes, printable

    if as_json:
        write_json(_verify_json(result), stream)
        return
    console = make_console(stream)
    if not console.is_terminal:
        console.width = _UNLIMITED  # programs read whole names
    size = human_bytes(result.bytes)
    found = f"{count(result.shards, 'shard')}, {count(result.records, 'record')}"
    if result.ok:
        what = "every checksum, count and size is" if result.full else "all sizes are"
        if result.checksums and not result.full:
            what = "all sizes and stored checksums are"
        fits = ", every record fits the schema" if result.deep else ""
        console.print(
            f"{result.name}: {what} right{fits} ({found}, {size})",
            style="green",
            soft_wrap=True,
        )
        if result.duplicates:
            console.print(f"duplicates: {result.duplicates}", soft_wrap=True)
        return
    problems = count(len(result.problems), "problem")
    console.print(f"{result.name}: {problems} ({found} found, {size})", style="red")
    table = make_table(("file", "left"), ("problem", "left"))
    for problem in result.problems:
        table.add_row(printable(problem.file), printable(problem.message))
    console.print(table)
    kinds = {problem.kind for problem in result.problems}
    output = printable(shlex.quote(result.output))
    for kind, advice in _ADVICE.items():
        if kind in kinds:
            console.print(f"\n{advice.format(output=output)}", soft_wrap=True)


def _verify_json(result: VerifyResult) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "output": result.output,
        "name": result.name,
        "full": result.full,
        "deep": result.deep,
        "stored_checksums": result.checksums,
        "shards": result.shards,
        "records": result.records,
        "bytes": result.bytes,
        "duplicates": result.duplicates,
        "metadata_files": result.files,
        "problems": [
            {"file": problem.file, "message": problem.message, "kind": problem.kind}
            for problem in result.problems
        ],
    }
