"""Shows what a verification or a comparison of datasets found: tables, lines or JSON."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, TextIO

from recordmill.beam_jobs.report.text_tables import make_console, make_table, write_json
from recordmill.schemas.text import count

if TYPE_CHECKING:
    from recordmill.transforms.dataset.diff import Compared
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


def show_diff(
    outputs: tuple[str, str],
    compared: Compared,
    *,
    as_json: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Shows what was found.

    Args:
      outputs: the folders of the two datasets.
      compared: what recordmill.transforms.dataset.diff found.
      as_json: write one JSON object.
      stream: where to; standard output unless given.
    """
    if as_json:
        write_json(_json(outputs, compared), stream)
        return
    from recordmill.schemas.text import printable

    lines = _lines([printable(output) for output in outputs], compared)
    console = make_console(stream)
    for line in lines:
        console.print(line, soft_wrap=True)


def _lines(outputs: list[str], compared: Compared) -> list[str]:
    from recordmill.schemas.text import printable

    records = compared.records
    lines = [f"{outputs[0]} | {outputs[1]}"]
    lines.append("schema: differs" if compared.schema else "schema: the same")
    lines += [f"  {printable(sentence)}" for sentence in compared.schema]
    for name, counts in compared.splits.items():
        shown = ["no such split" if n is None else count(n, "row") for n in counts]
        both = shown[0] if counts[0] == counts[1] else " | ".join(shown)
        lines.append(f"split {printable(name)}: {both}")
    facts = [f"{records.both:,} in both"]
    if records.moved:
        facts.append(f"{records.moved:,} of them in another split")
    facts += [
        f"{number:,} only in {output}"
        for number, output in zip(records.only, outputs, strict=True)
        if number
    ]
    how = " (by the checksums of their shards)" if compared.same_files else ""
    lines.append(f"rows: {', '.join(facts)}{how}")
    for side, output in enumerate(outputs):
        for number in records.examples[side]:
            shard, index = compared.sides[side].place(number)
            where = f"record {index} of {shard.entry.file}"
            lines.append(f"  only in {output}: {printable(where)}")
    lines.append("the same rows" if compared.same else "they differ")
    return lines


def _json(outputs: tuple[str, str], compared: Compared) -> dict[str, Any]:
    records = compared.records

    def places(side: int) -> list[dict[str, Any]]:
        found = map(compared.sides[side].place, records.examples[side])
        return [{"file": shard.entry.file, "record": index} for shard, index in found]

    return {
        "same": compared.same,
        "schema": list(compared.schema),
        "splits": {name: list(counts) for name, counts in compared.splits.items()},
        "both": records.both,
        "moved": records.moved,
        "only": [
            {"output": output, "rows": records.only[side], "first": places(side)}
            for side, output in enumerate(outputs)
        ],
    }
