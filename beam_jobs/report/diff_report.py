"""Shows how two datasets differ: lines for people, JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from recordmill.beam_jobs.report.text_tables import make_console, write_json
from recordmill.schemas.text import count

if TYPE_CHECKING:
    from recordmill.transforms.dataset.diff import Compared


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
