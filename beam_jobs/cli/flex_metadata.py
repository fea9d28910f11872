"""Makes deploy/dataflow/metadata.json, the form of the Flex Template, of the options.

python -m recordmill.beam_jobs.cli.flex_metadata > deploy/dataflow/metadata.json
"""

from __future__ import annotations

import sys
from typing import Any

from recordmill.beam_jobs.cli.option_table import format_options
from recordmill.schemas.job.option import Option
from recordmill.schemas.job.options import offered_by
from recordmill.schemas.text import json_bytes

_GROUPS = (
    "Job file",
    "Input and output",
    "Dataset",
    "Splits and shards",
    "Schema and rejects",
    "Formats",
    "Run",
    "Reports",
)
_TYPES = {
    "integer": "NUMBER",
    "schema": "GCS_READ_FILE",
    "folder": "GCS_WRITE_FOLDER",
    "flag": "ENUM",
    "choice": "ENUM",
    "source": "ENUM",
}
_SEVERAL = "several with spaces between"


def metadata() -> dict[str, Any]:
    """Returns the template's parameters: those of jobs, and two of Beam's workers."""
    parameters = [_parameter(option) for option in offered_by("template")]
    parameters += _format_parameters()
    parameters += [
        _made(
            "job_file",
            "Job file",
            "A job in YAML, which says all the rest; or give source, inputs and output.",
            "Job file",
            "GCS_READ_FILE",
        ),
        _made(
            "sdk_container_image",
            "Image of the workers",
            "The image that this template was built from.",
            "Run",
        ),
        _made(
            "sdk_location",
            "Where workers have Beam from",
            "Say container: that image has all that they need.",
            "Run",
        ),
    ]
    order = ["job_file", *(one["name"] for one in parameters)]
    parameters.sort(
        key=lambda one: (_GROUPS.index(one["groupName"]), order.index(one["name"]))
    )
    return {
        "name": "recordmill",
        "description": "Converts folders of images, CIFAR binary files and CSV into "
        "tf.train.Example records in balanced TFRecord shards, shuffled globally.",
        "streaming": False,
        "parameters": parameters,
    }


def _format_parameters() -> list[dict[str, Any]]:
    """Returns the parameters of the formats; one that several have is there once."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for source, options in format_options().items():
        for option in options:
            found.setdefault(option.parameter, {})[source] = _parameter(option)
    return [_merged(by_source) for by_source in found.values()]


def _merged(by_source: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the parameter of several formats; of one, as it is."""
    first = next(iter(by_source.values()))
    if len(by_source) == 1:
        return first
    same_help: dict[str, list[str]] = {}
    for source, made in by_source.items():
        same_help.setdefault(made["helpText"], []).append(source)
    parts = [f"{', '.join(names)}: {text}" for text, names in same_help.items()]
    title = first["label"].rpartition(" (")[0]
    merged = first | {"label": f"{title} ({', '.join(by_source)})"}
    merged["helpText"] = " ".join(parts)
    if any(
        made.get("enumOptions") != first.get("enumOptions")
        for made in by_source.values()
    ):
        merged.pop("enumOptions", None)
        merged["paramType"] = "TEXT"
    return merged


def _parameter(option: Option) -> dict[str, Any]:
    text = f"{option.help[:1].upper()}{option.help[1:]}"
    if option.is_repeated or option.kind == "inputs":
        form = f"{option.metavar}, " if option.metavar else ""
        text += f"; {form}{_SEVERAL}, a value with spaces in quotes"
    if default := option.shown_default:
        text += f". By default: {default}"
    choices = option.choices
    if option.kind == "flag":
        choices = ("true", "false")
    elif option.kind == "source":
        choices = tuple(format_options())
    pattern = option.pattern
    if option.kind == "integer":
        pattern = r"[1-9]\d*" if option.minimum else r"\d+"
    name = option.name if option.kind in ("inputs", "source") else option.parameter
    made = _made(
        name,
        option.label,
        f"{text}.".replace("`", ""),
        option.group,
        _TYPES.get(option.kind, "TEXT"),
    )
    if choices:
        made["enumOptions"] = [{"value": each, "label": each} for each in choices]
    if pattern:
        made["regexes"] = [pattern]
    return made


def _made(
    name: str, label: str, text: str, group: str, kind: str = "TEXT"
) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "helpText": text,
        # The console sends defaults along; one of `convert` would spoil a job file.
        "isOptional": True,
        "paramType": kind,
        "groupName": group,
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(json_bytes(metadata()))
