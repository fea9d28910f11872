"""Makes the form of the Dataflow template, deploy/dataflow/metadata.json.

Titles and patterns are written there by hand. The rest follows the declared options:

    python tests/helpers/dataflow_form.py    updates the file
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from option_table import format_options

from recordmill.schemas.options import TEMPLATE, Option, options_of
from recordmill.schemas.text import format_json

FILE = Path(__file__).parents[2] / "deploy" / "dataflow" / "metadata.json"
OWN = ("job_file", "sdk_container_image", "sdk_location")  # no options of jobs

_TYPES = {
    "integer": "NUMBER",
    "schema": "GCS_READ_FILE",
    "folder": "GCS_WRITE_FOLDER",
    "flag": "ENUM",
    "choice": "ENUM",
    "source": "ENUM",
}
_SEVERAL = "several with spaces between, a value with spaces in quotes"


def updated_form() -> dict[str, Any]:
    """Returns the form with all parameters as they are declared."""
    form: dict[str, Any] = json.loads(FILE.read_text())
    written = {one["name"]: one for one in form["parameters"]}
    declared = {name: written[name] for name in OWN}
    for option in options_of(TEMPLATE):
        made = _parameter(option)
        declared[made["name"]] = made
    for name, by_source in _format_options().items():
        declared[name] = _merged(by_source)
    form["description"] = (
        f"Converts files to balanced, shuffled TFRecord shards of tf.train.Example. "
        f"Formats: {', '.join(sorted(format_options()))}."
    )
    names = [name for name in written if name in declared]
    names += [name for name in declared if name not in written]
    form["parameters"] = [
        _kept(written.get(name, {}), declared[name]) for name in names
    ]
    return form


def _kept(written: dict[str, Any], declared: dict[str, Any]) -> dict[str, Any]:
    """Returns a parameter with the title and the pattern that were written by hand."""
    by_hand = {"label": declared["name"].replace("_", " ").capitalize()}
    by_hand |= {key: written[key] for key in ("label", "regexes") if key in written}
    return declared | by_hand


def _format_options() -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the parameters of formats by name and format: several formats share one."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for source, options in format_options().items():
        for option in options:
            made = _parameter(option)
            found.setdefault(made["name"], {})[source] = made
    return found


def _merged(by_source: dict[str, dict[str, Any]]) -> dict[str, Any]:
    first = next(iter(by_source.values()))
    if len(by_source) == 1:
        return first
    same_help: dict[str, list[str]] = {}
    for source, made in by_source.items():
        same_help.setdefault(made["helpText"], []).append(source)
    parts = [f"{', '.join(names)}: {text}" for text, names in same_help.items()]
    merged = first | {"helpText": " ".join(parts)}
    if any(
        m.get("enumOptions") != first.get("enumOptions") for m in by_source.values()
    ):
        merged.pop("enumOptions", None)
        merged["paramType"] = "TEXT"
    return merged


def _parameter(option: Option) -> dict[str, Any]:
    text = f"{option.help_text[:1].upper()}{option.help_text[1:]}"
    if option.is_repeated or option.value_kind == "inputs":
        text += f"; {option.metavar}, {_SEVERAL}" if option.metavar else f"; {_SEVERAL}"
    if default := option.default_description:
        text += f". By default: {default}"
    choices = option.choices
    if option.value_kind == "flag":
        choices = ("true", "false")
    elif option.value_kind == "source":
        choices = tuple(format_options())
    own_name = option.value_kind in ("inputs", "source")
    name = option.name if own_name else option.command_flag.removeprefix("--")
    made: dict[str, Any] = {
        "name": name.replace("-", "_"),
        "helpText": f"{text}.".replace("`", ""),
        # The console sends defaults along; one of `convert` would spoil a job file.
        "isOptional": True,
        "paramType": _TYPES.get(option.value_kind, "TEXT"),
        "groupName": option.group,
    }
    if choices:
        made["enumOptions"] = [{"value": each, "label": each} for each in choices]
    return made


if __name__ == "__main__":
    FILE.write_bytes(format_json(updated_form()))
