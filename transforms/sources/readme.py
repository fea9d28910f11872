"""Reads the configurations in the README.md of a dataset from the Hugging Face Hub.

They are in the front matter, which is YAML between two lines of "---":

    ---
    configs:
    - config_name: en
      data_files: [{split: train, path: en/train-*}, {split: test, path: en/test-*}]
    ---
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.text import is_utf8
from recordmill.transforms.sources.globs import expand_braces

# (split or "", glob of paths relative to the folder of README.md)
SplitPattern = tuple[str, str]

_FRONT_MATTER = re.compile(rb"---\s*\n(.*?)\n---\s*(\n|$)", re.DOTALL)
_EXPECTED_FORM = (
    "expected `configs` in the form of the Hugging Face Hub, such as "
    "[{config_name: en, data_files: [{split: train, path: en/train-*}]}]"
)


def read_configurations(head: bytes, uri: str) -> Mapping[str, list[SplitPattern]]:
    """Returns the patterns of each configuration, by name; {} if there are none.

    Raises:
      InputError: the front matter is not YAML, or its `configs` has an unknown form.
    """
    front_matter = _FRONT_MATTER.match(head)
    if not front_matter or b"config_name" not in front_matter[1]:
        return {}
    # Imported here because few inputs have a README.md with configurations.
    from recordmill.schemas.yaml_lines import YamlDocument

    try:
        # The leading newline stands for "---", so line numbers match README.md.
        front = YamlDocument(b"\n" + front_matter[1], uri).written_value()
    except SchemaError as error:
        raise InputError(str(error)) from error
    configs = front.get("configs") if isinstance(front, dict) else None
    if configs is None:
        return {}
    if not is_utf8(json.dumps(configs, ensure_ascii=False)):
        raise InputError(f"{uri}: configs has an unpaired surrogate; expected UTF-8")
    configurations = dict[str, list[SplitPattern]]()
    for config in _list_of(configs, uri):
        if not isinstance(config, dict) or not isinstance(
            name := config.get("config_name"), str
        ):
            raise InputError(
                f"{uri}: an entry of configs has no config_name; {_EXPECTED_FORM}"
            )
        configurations[name] = list(_patterns(config, f"{uri}: config {name!r}"))
    return configurations


def _patterns(config: Mapping[str, Any], location: str) -> Iterator[SplitPattern]:
    """Yields the patterns of one configuration."""
    files, folder = config.get("data_files"), config.get("data_dir")
    if not files:
        if folder is not None and not isinstance(folder, str):
            raise InputError(f"{location}: data_dir is not the name of a folder")
        files = f"{folder}/**" if folder else []
    for file_config in _list_of(files, location):
        split, paths = "", file_config
        if isinstance(file_config, dict):
            split, paths = file_config.get("split") or "", file_config.get("path")
        for path in _list_of(paths, location):
            if not isinstance(path, str) or not isinstance(split, str):
                raise InputError(
                    f"{location}: data_files has no path as text; {_EXPECTED_FORM}"
                )
            expand_braces(path)  # raises an error if it stands for too many globs
            yield split, path.removeprefix("./")


def _list_of(config_value: Any, location: str) -> list[Any]:
    """Returns a list unchanged, and a string as a list of one string."""
    if isinstance(config_value, str):
        return [config_value]
    if not isinstance(config_value, list):
        raise InputError(
            f"{location}: found a value that is not a list; {_EXPECTED_FORM}"
        )
    return config_value
